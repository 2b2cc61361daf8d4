"""The flow `hydrate-models`, called from Python on a real Prefect server, and what it shows there."""

import asyncio
import hashlib
import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterName,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import State, TaskRun

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.leases import living
from comfyfarm.cache.peers.server import open_server, serving
from comfyfarm.clock import SystemClock, pause
from comfyfarm.farm.supplies import keeper_from
from comfyfarm.settings import read_settings
from flows.hydrate_models import hydrate_models
from flows.hydration_limits import MIRROR_SLOTS, mirror_tag, set_hydration_limits

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("prefect_api"),
    # Prefect's own clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]


def pinned(folder: str, path: str, data: bytes, *sources: Path) -> dict[str, Any]:
    return {
        "folder": folder,
        "path": path,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "sources": [str(source) for source in sources],
    }


def written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


async def run(lock: dict[str, Any] | str, host: str, folder: Path, **more: Any) -> State[Any]:
    state: State[Any] = await hydrate_models(
        lock=lock,
        host=host,
        cache_dir=str(folder / "cache"),
        models_dir=str(folder / "models"),
        return_state=True,
        **more,
    )
    return state


async def task_runs(host: str, *, recorded: int) -> list[TaskRun]:
    """The task runs of the host's hydrations, once the server has recorded that many in an end state."""
    async with get_client() as client:
        end = SystemClock().monotonic() + 30
        while True:
            named = FlowRunFilter(name=FlowRunFilterName(any_=[f"models to {host}"]))
            ids = [one.id for one in await client.read_flow_runs(flow_run_filter=named)]
            found = await client.read_task_runs(
                task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=ids))
            )
            over = [one for one in found if one.state is not None and one.state.is_final()]
            if len(over) >= recorded or SystemClock().monotonic() > end:
                return over
            await SystemClock().sleep(0.2)


async def artifact(key: str) -> Any:
    """Its newest version."""
    async with get_client() as client:
        found = await client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
    return max(found, key=lambda one: str(one.created))


async def event(name: str, resource: str) -> dict[str, Any]:
    """The event of a resource; Prefect takes a moment to write it."""
    wanted = {"filter": {"event": {"name": [name]}, "resource": {"id": [resource]}}}
    async with get_client() as client, asyncio.timeout(30):
        while True:
            found = (await client.request("POST", "/events/filter", json=wanted)).json()["events"]
            if found:
                return dict(found[0])
            await SystemClock().sleep(0.2)


async def test_a_locks_files_come_once_are_linked_and_show_in_the_dashboard(tmp_path: Path) -> None:
    large, small, spoiled = b"l" * 3_000_000, b"s" * 1_000_000, b"q" * 500_000
    sources = {name: tmp_path / name for name in ("large", "small", "spoiled")}
    for name, data in zip(sources, (large, small, spoiled), strict=True):
        written(sources[name], data)
    models = [
        pinned("loras", "a/large.safetensors", large, sources["large"]),
        pinned("checkpoints", "same.safetensors", large, sources["large"]),
        pinned("vae", "small.safetensors", small, sources["small"]),
        pinned("vae", "spoiled.safetensors", spoiled, sources["spoiled"]),
    ]
    wrong = BlobStore(tmp_path / "cache").path(models[3]["sha256"])
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"torn")

    state = await run({"version": 1, "models": models}, "shown-host", tmp_path)

    assert state.is_completed(), state
    assert state.message == "3 model files fetched (4.5 MB), 0 were here"
    for one in models:
        data = (tmp_path / "models" / one["folder"] / one["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
    runs = {one.name: one for one in await task_runs("shown-host", recorded=3)}
    # One content, one task, whatever its names.
    assert set(runs) == {
        "hydrate-same.safetensors",
        "hydrate-small.safetensors",
        "hydrate-spoiled.safetensors",
    }
    assert all(one.tags == ["hydrate:shown-host"] for one in runs.values())
    progress = await artifact("hydrating-shown-host")
    assert float(progress.data) == 100.0
    assert "4.5 MB of 4.5 MB" in progress.description
    table = await artifact("hydration-shown-host")
    rows = {row["file"]: row for row in json.loads(table.data)}
    assert table.description == "3 model files on `shown-host`, 3 fetched"
    assert rows["checkpoints/same.safetensors"]["size"] == "3.0 MB"
    assert rows["checkpoints/same.safetensors"]["rate"].endswith("MB/s")
    hydrated = await event("comfyfarm.model.hydrated", f"comfyfarm.model.{models[2]['sha256']}")
    assert (hydrated["payload"]["host"], hydrated["payload"]["bytes"]) == ("shown-host", 1_000_000)
    await event("comfyfarm.model.quarantined", f"comfyfarm.model.{models[3]['sha256']}")

    # Nothing is to be fetched: nobody is spared by waiting.
    again = await run({"version": 1, "models": models}, "shown-host", tmp_path, spread_s=3600.0, pin=True)

    assert again.message == "0 model files fetched (0.0 MB), 3 were here"
    rows = {row["file"]: row for row in json.loads((await artifact("hydration-shown-host")).data)}
    assert {row["state"] for row in rows.values()} == {"was here"}

    pins = keeper_from(read_settings(), tmp_path / "cache").index.read().pins
    assert set(pins) == {one["sha256"] for one in models}

    # Prefect's cache says that it was here; it is not any more.
    BlobStore(tmp_path / "cache").path(models[2]["sha256"]).unlink()
    evicted = await run({"version": 1, "models": models}, "shown-host", tmp_path)

    assert evicted.message == "1 model file fetched (1.0 MB), 2 were here"


async def test_a_failure_names_every_file_and_the_others_are_here(tmp_path: Path) -> None:
    good = b"g" * 100_000
    models = [
        pinned("vae", "gone.safetensors", b"gone", tmp_path / "nowhere"),
        pinned("vae", "wrong.safetensors", b"right", written(tmp_path / "wrong", b"wrong")),
        pinned("vae", "good.safetensors", good, written(tmp_path / "good", good)),
    ]

    state = await run({"version": 1, "models": models}, "short-host", tmp_path)

    assert state.is_failed()
    for words in (
        "2 model files did not come to short-host",
        "vae/gone.safetensors",
        "vae/wrong.safetensors",
    ):
        assert words in str(state.message)
    assert "vae/good" not in str(state.message)
    assert (tmp_path / "models" / "vae" / "good.safetensors").read_bytes() == good
    told = await event("comfyfarm.hydration.failed", "comfyfarm.host.short-host")
    assert {one["file"] for one in told["payload"]["files"]} == {
        "vae/gone.safetensors",
        "vae/wrong.safetensors",
    }
    rows = {row["file"]: row for row in json.loads((await artifact("hydration-short-host")).data)}
    assert rows["vae/gone.safetensors"]["state"].startswith("failed: ")
    assert rows["vae/good.safetensors"]["state"] == "fetched"


_TAKES_S = 0.1  # each request: without a limit others come meanwhile


class Mirror(ThreadingHTTPServer):
    """Serves blobs with ranges, and notes how many different ones it gives at once."""

    daemon_threads = True

    def __init__(self, blobs: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), MirrorHandler)
        self.blobs = blobs
        self.lock = threading.Lock()
        self.going: Counter[str] = Counter()
        self.most = 0
        self.given: Counter[str] = Counter()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault."""


class MirrorHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Mirror

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        data = self.server.blobs.get(self.path)
        if data is None:
            self.send_error(404)
            return
        with self.server.lock:
            self.server.going[self.path] += 1
            self.server.most = max(self.server.most, len(+self.server.going))
        pause(_TAKES_S)
        first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
        body = data[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("ETag", '"v1"')
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        with self.server.lock:
            self.server.going[self.path] -= 1
            self.server.given[self.path] += len(body)


@pytest.fixture
def files() -> list[bytes]:
    return [bytes([number]) * 2_000_000 for number in range(6)]


@pytest.fixture
def mirror(files: list[bytes]) -> Iterator[Mirror]:
    digests = [hashlib.sha256(data).hexdigest() for data in files]
    blobs = {f"/m/sha256/{one[:2]}/{one}": data for one, data in zip(digests, files, strict=True)}
    with Mirror(blobs) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_hosts_that_begin_at_once_do_not_stampede_the_mirror(
    mirror: Mirror, files: list[bytes], tmp_path: Path
) -> None:
    address = f"http://127.0.0.1:{mirror.server_port}/m"
    tag = str(mirror_tag(address))
    async with get_client() as client:
        await client.create_concurrency_limit(tag=tag, concurrency_limit=1)  # as a user would
    models = [pinned("loras", f"{at}.safetensors", data) for at, data in enumerate(files)]
    lock = written(tmp_path / "lock", json.dumps({"version": 1, "models": models}).encode())

    states = await asyncio.gather(
        *(run(str(lock), f"crowd-{one}", tmp_path / one, mirror=address) for one in ("a", "b"))
    )

    assert [state.message for state in states] == ["6 model files fetched (12.0 MB), 0 were here"] * 2
    assert mirror.most == 1
    assert all(tag in one.tags for one in await task_runs("crowd-a", recorded=6))
    async with get_client() as client:
        assert (await client.read_concurrency_limit_by_tag(tag)).concurrency_limit == 1
        assert (await client.read_concurrency_limit_by_tag("hydrate:crowd-a")).concurrency_limit == 4


def key(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"/m/sha256/{digest[:2]}/{digest}"


async def test_wrong_bytes_are_asked_for_once_more_and_no_oftener(
    mirror: Mirror, files: list[bytes], tmp_path: Path
) -> None:
    good, spoiled = files[:2]
    mirror.blobs[key(spoiled)] = b"?" + spoiled[1:]
    models = [pinned("loras", f"{at}.safetensors", data) for at, data in enumerate((good, spoiled))]

    state = await run(
        {"version": 1, "models": models},
        "spoiled",
        tmp_path,
        mirror=f"http://127.0.0.1:{mirror.server_port}/m",
    )

    assert state.is_failed()
    assert "other bytes" in str(state.message)
    assert dict(mirror.given) == {key(good): len(good), key(spoiled): 2 * len(spoiled)}


async def test_a_peer_that_lied_about_one_file_is_not_asked_for_the_next(
    mirror: Mirror, files: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = BlobStore(tmp_path / "liar")
    for data in files[:3]:
        path = liar.path(hashlib.sha256(data).hexdigest())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"?" + data[1:])
    async with get_client() as client:  # one after the other
        await client.create_concurrency_limit(tag="hydrate:believer", concurrency_limit=1)
    server = open_server(liar, host="127.0.0.1", port=0, token="shared-5ecret")
    monkeypatch.setenv("COMFYFARM_PEER_TOKEN", "shared-5ecret")
    models = [pinned("loras", f"{at}.safetensors", data) for at, data in enumerate(files[:3])]
    with serving(server) as url:
        monkeypatch.setenv("COMFYFARM_PEERS", url)
        state = await run(
            {"version": 1, "models": models},
            "believer",
            tmp_path,
            mirror=f"http://127.0.0.1:{mirror.server_port}/m",
        )
        metrics = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer shared-5ecret"})  # noqa: S310
        with await asyncio.to_thread(urllib.request.urlopen, metrics) as answer:
            told = answer.read().decode()

    assert state.message == "3 model files fetched (6.0 MB), 0 were here"
    assert f"comfyfarm_peer_sent_bytes_total {len(files[0])}\n" in told


async def test_a_file_that_breaks_the_run_leaves_no_other_on_its_way(
    mirror: Mirror, files: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Keeper.link
    is_held: list[bool] = []

    def held(keeper: Keeper) -> bool:
        return "hydration of broken" in [note.who for note in living(keeper.blobs.root)]

    def broken(keeper: Keeper, models: Any, *given: Any, **more: Any) -> Any:
        if models[0].path == "broken.safetensors":
            raise ZeroDivisionError
        end = SystemClock().monotonic() + 1.5  # so long it could be noticed that the run is over
        while held(keeper) and SystemClock().monotonic() < end:
            pause(0.05)
        is_held.append(held(keeper))
        return link(keeper, models, *given, **more)

    monkeypatch.setattr(Keeper, "link", broken)
    models = [
        pinned("loras", "broken.safetensors", b"b", written(tmp_path / "source", b"b")),
        *(pinned("loras", f"{at}.safetensors", data) for at, data in enumerate(files)),
    ]

    state = await run(
        {"version": 1, "models": models},
        "broken",
        tmp_path,
        mirror=f"http://127.0.0.1:{mirror.server_port}/m",
    )

    assert state.is_failed()
    assert "ZeroDivisionError" in str(state.message)
    came = sorted(path.name for path in (tmp_path / "models" / "loras").iterdir())
    assert came == [f"{at}.safetensors" for at in range(len(files))]
    assert is_held == [True] * len(files)


async def test_limits_are_made_once_and_are_the_users_from_then_on() -> None:
    address = "s3://bucket/limits"
    await set_hydration_limits("limit-host", address)
    async with get_client() as client:
        made = await client.read_concurrency_limit_by_tag(str(mirror_tag(address)))
        await client.create_concurrency_limit(tag="hydrate:limit-host", concurrency_limit=2)

    await set_hydration_limits("limit-host", address)

    async with get_client() as client:
        kept = await client.read_concurrency_limit_by_tag("hydrate:limit-host")
    assert (made.concurrency_limit, kept.concurrency_limit) == (MIRROR_SLOTS, 2)


async def test_without_a_lock_or_a_block_it_fails_with_what_to_do(tmp_path: Path) -> None:
    nothing = await run("", "shown-host", tmp_path)
    nobody: State[Any] = await hydrate_models(lock="x", host="no-such-host", return_state=True)

    assert nothing.is_failed()
    assert "no lock is named" in str(nothing.message)
    assert nobody.is_failed()
    assert "comfy-host/no-such-host" in str(nobody.message)
