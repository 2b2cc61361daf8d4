"""What a finished prompt left on its server, brought here under safe names."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import HistoryEntry, read_history
from comfyfarm.errors import ServerError
from comfyfarm.ids import JobId
from comfyfarm.outputs.collect import Spool, collect
from comfyfarm.outputs.names import SpooledFile, safe_relative
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

JOB = JobId("00000000-0000-4000-8000-000000000001")


class SwiftClock(SystemClock):
    """Does not wait."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


@contextmanager
def holding(files: dict[str, bytes], *, temp: dict[str, bytes] | None = None) -> Iterator[str]:
    """A fake server with these files in its output and temp folders."""
    fake = FakeComfy()
    for folder, found in ((fake.output_dir, files), (fake.places.temp_dir, temp or {})):
        for path, data in found.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
    with serve(fake.app) as url:
        yield url
    fake.clean_up()


def entry(outputs: dict[str, Any]) -> HistoryEntry:
    return read_history({"outputs": outputs})


def file(name: str, subfolder: str = "", kind: str = "output") -> dict[str, str]:
    return {"filename": name, "subfolder": subfolder, "type": kind}


async def collected(url: str, history: HistoryEntry, spool: Path) -> tuple[SpooledFile, ...]:
    async with ComfyClient(url) as client:
        return await collect(client, history, job_id=JOB, spool=Spool(spool), clock=SwiftClock())


async def test_every_kind_of_output_comes_home_hashed_and_without_the_jobs_prefix(tmp_path: Path) -> None:
    files = {f"{JOB}/p_00001_.png": b"png", f"{JOB}/sub/v_00001_.mp4": b"mp4", "loose.glb": b"glb"}
    outputs = {
        "9": {"images": [file("p_00001_.png", JOB), file("v_00001_.mp4", f"{JOB}/sub")]},
        "10": {"3d": [file("loose.glb")], "text": ["a fox", "a tram"]},
    }
    with holding(files) as url:
        found = await collected(url, entry(outputs), tmp_path)

    assert {one.path: one.local.read_bytes() for one in found} == {
        "p_00001_.png": b"png",
        "sub/v_00001_.mp4": b"mp4",
        "loose.glb": b"glb",
        "text/10_text.txt": b"a fox\na tram",
    }
    for one in found:
        assert one.local == tmp_path / JOB / one.path
        assert one.sha256 == hashlib.sha256(one.local.read_bytes()).hexdigest()
        assert one.size == len(one.local.read_bytes())
    assert sorted(path.name for path in (tmp_path / JOB).iterdir()) == [
        "loose.glb",
        "p_00001_.png",
        "sub",
        "text",
    ]


async def test_previews_are_left_out_unless_there_is_nothing_else(tmp_path: Path) -> None:
    with holding({"a.png": b"a"}, temp={"t.png": b"t"}) as url:
        both = entry({"9": {"images": [file("t.png", kind="temp"), file("a.png")]}})
        alone = entry({"9": {"images": [file("t.png", kind="temp")]}})

        assert [one.path for one in await collected(url, both, tmp_path)] == ["a.png"]
        assert [one.path for one in await collected(url, alone, tmp_path)] == ["t.png"]


async def test_what_an_earlier_try_left_is_gone(tmp_path: Path) -> None:
    stale = tmp_path / JOB / ".partial"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"half")
    (tmp_path / JOB / "old.png").write_bytes(b"old")
    with holding({"a.png": b"a"}) as url:
        await collected(url, entry({"9": {"images": [file("a.png")]}}), tmp_path)

    assert [path.name for path in (tmp_path / JOB).iterdir()] == ["a.png"]


async def test_a_file_that_is_missing_is_an_error_after_three_tries(tmp_path: Path) -> None:
    asked: list[str] = []

    async def view(request: web.Request) -> web.Response:
        asked.append(request.query["filename"])
        return web.Response(status=404)

    app = web.Application()
    app.router.add_get("/view", view)
    with serve(app) as url, pytest.raises(ServerError, match=r"gone\.png: 404"):
        await collected(url, entry({"9": {"images": [file("gone.png")]}}), tmp_path)

    assert asked == ["gone.png"] * 3


async def test_a_download_that_breaks_off_is_made_again(tmp_path: Path) -> None:
    tries = [0]

    async def view(request: web.Request) -> web.StreamResponse:
        tries[0] += 1
        if tries[0] == 3:
            return web.Response(body=b"x" * 1000)
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"x" * 400)
        assert request.transport is not None
        request.transport.abort()
        return answer

    app = web.Application()
    app.router.add_get("/view", view)
    with serve(app) as url:
        (found,) = await collected(url, entry({"9": {"images": [file("a.png")]}}), tmp_path)

    assert found.local.read_bytes() == b"x" * 1000


@pytest.mark.parametrize("answers", [[503] * 7, [404, 503, 503, 503, 404]])
async def test_a_server_in_trouble_still_has_its_files(tmp_path: Path, answers: list[int]) -> None:
    left = list(answers)

    async def view(_request: web.Request) -> web.Response:
        return web.Response(status=left.pop(0)) if left else web.Response(body=b"x")

    app = web.Application()
    app.router.add_get("/view", view)
    with serve(app) as url:
        (found,) = await collected(url, entry({"9": {"images": [file("a.png")]}}), tmp_path)

    assert found.local.read_bytes() == b"x"


@pytest.mark.parametrize(
    "name",
    ["../../evil.png", "/etc/evil.png", "..\\evil.png", "a/../../b.png", "CON", "x\0y.png", "a\nb.png"],
)
async def test_a_server_cannot_write_outside_of_the_jobs_folder(tmp_path: Path, name: str) -> None:
    async def view(_request: web.Request) -> web.Response:
        return web.Response(body=b"x")

    app = web.Application()
    app.router.add_get("/view", view)
    spool = tmp_path / "spool"
    with serve(app) as url:
        found = await collected(
            url, entry({"9": {"images": [file(name), file("b.png", f"../../{name}")]}}), spool
        )

    assert len(found) == 2
    assert all(one.local.resolve().is_relative_to(spool / JOB) for one in found)
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(spool / JOB)
    ] == []


async def test_files_that_would_lie_on_each_other_all_come_home(tmp_path: Path) -> None:
    names = [
        ("a.png", ""),
        ("A.PNG", ""),
        ("x", ""),
        ("y.png", "x"),
        ("z", "d"),
        ("d", ""),
        ("file", ".partial"),
        ("text", ""),
        ("node9_1_A.PNG", ""),
    ]
    outputs = {"9": {"images": [file(*one) for one in names], "text": ["words"]}}

    async def view(request: web.Request) -> web.Response:
        return web.Response(body=f"{request.query['subfolder']}/{request.query['filename']}".encode())

    app = web.Application()
    app.router.add_get("/view", view)
    with serve(app) as url:
        found = await collected(url, entry(outputs), tmp_path)

    held = [one.local.read_bytes().decode() for one in found]
    assert held == [*(f"{subfolder}/{name}" for name, subfolder in names), "words"]
    assert len({one.path.casefold() for one in found}) == len(names) + 1


NAMES = st.sampled_from(["a", "A", "b", "a.png", ".partial", "text", "9_t.txt"])
FOLDERS = st.lists(st.sampled_from(["a", "b", "A", ".partial", "text"]), max_size=2).map("/".join)


@settings(max_examples=25, deadline=None)
@given(outputs=st.lists(st.tuples(NAMES, FOLDERS), max_size=8, unique=True), text=st.text(max_size=5))
def test_no_two_outputs_ever_share_a_place(
    outputs: list[tuple[str, str]], text: str, tmp_path_factory: pytest.TempPathFactory, echo: str
) -> None:
    import asyncio

    history = entry({"9": {"x": [file(*one) for one in outputs], "t": [f"{text} \ud83d"]}})
    found = asyncio.run(collected(echo, history, tmp_path_factory.mktemp("spool")))

    assert len(found) == len(outputs) + 1
    assert len({one.path.casefold() for one in found}) == len(found)
    assert all(one.local.is_file() for one in found)
    assert all(safe_relative(*reversed(one.path.rpartition("/")[::2])) for one in found)


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """Gives any file."""

    async def view(_request: web.Request) -> web.Response:
        return web.Response(body=b"x")

    app = web.Application()
    app.router.add_get("/view", view)
    with serve(app) as url:
        yield url
