"""`comfyfarm prewarm`: ahead of time, in the order of need, each file to be seen as soon as it is whole."""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from comfyfarm.cache.keeper.admission import Cause
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.clock import SystemClock, pause

Command = Callable[..., Result]

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))


class Web(ThreadingHTTPServer):
    """Serves files with ranges; those in `gates` only once their gate is open."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WebHandler)
        self.files: dict[str, bytes] = {}
        self.gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no fault."""


class WebHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Web

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        if data is None:
            self.send_error(404)
            return
        first, _, last = (self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")
        body = data[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("ETag", '"v1"')
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if gate := self.server.gates.get(self.path):
            gate.wait(30)
        self.wfile.write(body)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        for gate in server.gates.values():
            gate.set()
        server.shutdown()
        thread.join()


def locked(web: Web, folder: str, path: str, size: int = 1000) -> dict[str, Any]:
    """A model that the server has."""
    data = path.encode().ljust(size, b"\0")
    web.files[f"/{path}"] = data
    return {
        "folder": folder,
        "path": path,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "sources": [web.url(f"/{path}")],
    }


def write_lock(file: Path, *models: dict[str, Any]) -> Path:
    file.write_text(json.dumps({"version": 1, "models": models}))
    return file


def links(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_files_come_are_linked_and_the_second_call_is_silent(
    command: Command, web: Web, tmp_path: Path
) -> None:
    one, other = locked(web, "vae", "v.safetensors"), locked(web, "loras", "a/l.safetensors")
    twin = {**other, "folder": "checkpoints", "path": "same.safetensors"}
    lock = write_lock(tmp_path / "comfyfarm.lock", one, other, twin)

    first = command("prewarm", lock, "--link-into", tmp_path / "models")
    asked = len(web.asked)
    second = command("prewarm", lock, "--link-into", tmp_path / "models", "--spread", 3600)

    assert (first.exit_code, first.stdout) == (0, "")
    assert "2 models came, verified" in first.stderr
    assert links(tmp_path / "models") == {
        "vae/v.safetensors": web.files["/v.safetensors"],
        "loras/a/l.safetensors": web.files["/a/l.safetensors"],
        "checkpoints/same.safetensors": web.files["/a/l.safetensors"],
    }
    # Nothing is to come, so that nothing is said, asked or waited for.
    assert (second.exit_code, second.output) == (0, "")
    assert len(web.asked) == asked


def test_a_link_that_is_gone_comes_back_without_a_transfer(
    command: Command, web: Web, tmp_path: Path
) -> None:
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))
    command("prewarm", lock, "--link-into", tmp_path / "models")
    (tmp_path / "models" / "vae" / "v.safetensors").unlink()
    web.files.clear()

    again = command("prewarm", lock, "--link-into", tmp_path / "models")

    assert again.exit_code == 0
    assert list(links(tmp_path / "models")) == ["vae/v.safetensors"]


def test_programs_read_what_came_and_what_did_not(command: Command, web: Web, tmp_path: Path) -> None:
    here, comes, gone = (locked(web, "vae", f"{name}.safetensors") for name in ("here", "comes", "gone"))
    command("prewarm", write_lock(tmp_path / "first.lock", here), "--link-into", tmp_path / "models")
    del web.files["/gone.safetensors"]
    lock = write_lock(tmp_path / "comfyfarm.lock", here, comes, gone)

    told = command("prewarm", lock, "--link-into", tmp_path / "models", "--json")

    assert told.exit_code == 3
    report = json.loads(told.stdout)
    assert {one["path"]: one["state"] for one in report["files"]} == {
        "here.safetensors": "here",
        "comes.safetensors": "fetched",
        "gone.safetensors": "failed",
    }
    assert report["fetched_bytes"] == 1000
    assert gone["sha256"] in report["error"]
    assert gone["sha256"] in told.stderr
    # What came is of use although another file did not.
    assert set(links(tmp_path / "models")) == {"vae/here.safetensors", "vae/comes.safetensors"}


def test_the_workflow_says_what_is_begun_first(command: Command, web: Web, tmp_path: Path) -> None:
    names = [f"{number}.safetensors" for number in range(6)]
    models = [locked(web, "loras", name, 2000 - 100 * at) for at, name in enumerate(names)]
    lock = write_lock(tmp_path / "comfyfarm.lock", *models)
    graph: dict[str, Any] = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "c.safetensors"}},
        "9": {"class_type": "ModelSave", "inputs": {"model": ["15", 0], "filename_prefix": "x"}},
    }
    # The last loader of the chain runs last; the file that the lock alone would put first comes last.
    for at, name in enumerate(reversed(names)):
        source = ["1", 0] if at == 0 else [str(9 + at), 0]
        inputs = {"model": source, "lora_name": name, "strength_model": 1.0}
        graph[str(10 + at)] = {"class_type": "LoraLoaderModelOnly", "inputs": inputs}
    (tmp_path / "w.json").write_text(json.dumps(graph))

    told = command("prewarm", lock, "--workflow", tmp_path / "w.json", "--json")

    assert told.exit_code == 0
    assert [one["path"] for one in json.loads(told.stdout)["files"]] == names[::-1]
    # Some are begun at once: those two stand four places apart.
    first_asked = list(dict.fromkeys(web.asked))
    assert first_asked.index("/5.safetensors") < first_asked.index("/0.safetensors")


def test_what_is_wrong_with_the_workflow_is_said_first(command: Command, web: Web, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))
    (tmp_path / "w.json").write_text("[]")

    told = command("prewarm", lock, "--workflow", tmp_path / "w.json")

    assert told.exit_code == 1
    assert "w.json" in told.stderr
    assert web.asked == []


def test_a_pin_keeps_the_files(command: Command, web: Web, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))

    pinned = command("prewarm", lock, "--pin")
    told = command("cache", "evict", "--all")
    listed = command("cache", "ls", "--json")

    assert (pinned.exit_code, told.exit_code) == (0, 0)
    (entry,) = map(json.loads, listed.stdout.splitlines())
    assert entry["pinned"]


def test_a_random_wait_comes_before_the_first_question(
    command: Command, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))
    waited: list[tuple[float, int]] = []
    monkeypatch.setattr(
        "comfyfarm.cli.prewarm_command.pause", lambda seconds: waited.append((seconds, len(web.asked)))
    )
    monkeypatch.setattr("random.uniform", lambda least, most: least + 0.25 * (most - least))

    assert command("prewarm", lock, "--spread", 80).exit_code == 0

    assert waited == [(20.0, 0)]


def test_files_that_are_here_are_noted_as_used(command: Command, web: Web, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))
    command("prewarm", lock)
    (before,) = map(json.loads, command("cache", "ls", "--json").stdout.splitlines())

    command("prewarm", lock)

    (after,) = map(json.loads, command("cache", "ls", "--json").stdout.splitlines())
    assert after["last_used"] > before["last_used"]
    assert json.loads(command("cache", "stats", "--json").stdout)["hits"] == 1


@pytest.mark.parametrize("words", [("prewarm",), ("hydrate", "--lock")])
@pytest.mark.parametrize("has_models_dir", [True, False])
def test_what_came_is_held_until_its_link_is_there(
    command: Command,
    web: Web,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    has_models_dir: bool,
) -> None:
    model = locked(web, "vae", "v.safetensors")
    lock = write_lock(tmp_path / "comfyfarm.lock", model)
    stayed: list[Cause] = []

    def crowded(name: str) -> None:
        place = getattr(Keeper, name)

        def placed(keeper: Keeper, *given: Any, **more: Any) -> Any:
            stayed.extend(stay.cause for stay in keeper.evict([model["sha256"]]).stayed.values())
            return place(keeper, *given, **more)

        monkeypatch.setattr(Keeper, name, placed)

    crowded("link")
    crowded("view")

    for _ in range(2):
        told = command(*words, lock, *(["--link-into", tmp_path / "models"] if has_models_dir else []))
        assert told.exit_code == 0, told.stderr

    assert stayed == [Cause.IN_USE] * 2


def foreign(root: Path) -> list[object]:
    (root / "models" / "vae").mkdir(parents=True)
    (root / "models" / "vae" / "here.safetensors").write_bytes(b"not ours")
    return ["--link-into", root / "models"]


def no_folder(root: Path) -> list[object]:
    shutil.rmtree(root / "cache" / "views")
    (root / "cache" / "views").write_bytes(b"in the way")
    return []


@pytest.mark.parametrize(
    ("obstacle", "quota", "long", "exit_code", "said"),
    [
        (foreign, "1", 0, 1, "here.safetensors"),
        (no_folder, "1", 0, 3, "cannot be written"),
        (lambda _root: [], "1", 300, 1, "longer than a name may be"),
        (lambda _root: [], "0.000001", 0, 2, "have to be fetched"),
    ],
)
def test_programs_read_what_stood_in_the_way(
    command: Command,
    web: Web,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    obstacle: Callable[[Path], list[object]],
    quota: str,
    long: int,
    exit_code: int,
    said: str,
) -> None:
    here = locked(web, "vae", "here.safetensors")
    twin = {**here, "path": "twin".ljust(long, "n") + ".safetensors"}
    command("prewarm", write_lock(tmp_path / "first.lock", here))
    lock = write_lock(tmp_path / "comfyfarm.lock", here, twin, locked(web, "vae", "comes.safetensors"))
    words = obstacle(tmp_path)
    monkeypatch.setenv("COMFYFARM_CACHE_QUOTA_GB", quota)

    told = command("prewarm", lock, *words, "--pin", "--json")

    assert told.exit_code == exit_code, told.stderr
    report = json.loads(told.stdout)
    assert said in report["error"]
    assert report["error"] in told.stderr
    assert {one["path"]: one["state"] for one in report["files"]} == {
        "here.safetensors": "here",
        twin["path"]: "here",
        "comes.safetensors": "failed",
    }


def offered(url: str) -> set[str]:
    with urllib.request.urlopen(f"{url}/object_info/VAELoader") as answer:  # noqa: S310
        info = json.load(answer)
    return {name for name in info["VAELoader"]["input"]["required"]["vae_name"][0] if "." in name}


def shows(url: str, name: str) -> bool:
    end = SystemClock().monotonic() + 20
    while name not in offered(url):
        if SystemClock().monotonic() > end:
            return False
        pause(0.05)
    return True


def test_a_server_that_starts_at_the_same_moment_shows_each_file_as_it_comes(
    web: Web, serving: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_CACHE_DIR", str(tmp_path / "cache"))
    first, second = locked(web, "vae", "first.safetensors"), locked(web, "vae", "second.safetensors")
    gates = web.gates = {"/first.safetensors": threading.Event(), "/second.safetensors": threading.Event()}
    lock = write_lock(tmp_path / "comfyfarm.lock", first, second)
    child = subprocess.Popen([PROGRAM, "prewarm", lock], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        # Said before the first byte comes: a server can be started with it at once.
        line = child.stderr.readline()
        config = line.rpartition("--extra-model-paths-config ")[2].strip()
        _, url = serving(extra_model_paths=Path(config))
        before = offered(url)
        gates["/second.safetensors"].set()
        second_shown = shows(url, "second.safetensors")
        meanwhile = offered(url)
        gates["/first.safetensors"].set()
        first_shown = shows(url, "first.safetensors")
        _, rest = child.communicate(timeout=30)
    finally:
        child.kill()
        child.wait()

    assert before == set()
    assert second_shown
    assert "first.safetensors" not in meanwhile
    assert first_shown
    assert child.returncode == 0, rest


def test_a_wrong_peer_is_refused_before_anything_is_promised(
    command: Command, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_PEERS", "http://host/with/a/path")
    lock = write_lock(tmp_path / "comfyfarm.lock", locked(web, "vae", "v.safetensors"))

    told = command("prewarm", lock)

    assert told.exit_code == 2
    assert "start ComfyUI" not in told.stderr


def test_hydrate_links_what_came_though_another_file_did_not(
    command: Command, web: Web, tmp_path: Path
) -> None:
    one, other = locked(web, "vae", "v.safetensors"), locked(web, "loras", "l.safetensors")
    del web.files["/l.safetensors"]
    lock = write_lock(tmp_path / "comfyfarm.lock", one, other)

    linked = command("hydrate", "--lock", lock, "--link-into", tmp_path / "models")
    viewed = command("hydrate", "--lock", lock)

    assert linked.exit_code == viewed.exit_code == 3
    assert other["sha256"] in linked.stderr
    assert list(links(tmp_path / "models")) == ["vae/v.safetensors"]
    assert "start ComfyUI with --extra-model-paths-config" in viewed.stderr
    assert "verified" not in viewed.stderr
