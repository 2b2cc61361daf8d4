"""The order of sources, and faults of web servers: right bytes or a named error, never a wrong file."""

import asyncio
import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.hydrate import hydrate_one
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.supply import Supply
from comfyfarm.clock import pause
from comfyfarm.errors import CorruptBytes, TransferError

if TYPE_CHECKING:
    from tests.core.cache.conftest import Model, WebServer

_FETCH = """
import asyncio, signal, sys
from dataclasses import dataclass
from pathlib import Path
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.hydrate import hydrate_one
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.supply import Supply

# Whoever starts the tests in the background may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

@dataclass
class Model:
    sha256: str
    size: int
    sources: tuple[str, ...] = ()

cache, sha256, size, source = sys.argv[1:]
keeper = Keeper(BlobStore(Path(cache)), Bounds(None, 0))
asyncio.run(hydrate_one(Model(sha256, int(size), (source,)), supply=Supply(), keeper=keeper))
"""


def _files(root: Path) -> list[str]:
    """All of the cache but what its keeper notes."""
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return [name for name in found if not name.startswith("index.db")]


def _seen(root: Path) -> list[str]:
    """What can be used: not what is on its way."""
    return [name for name in _files(root) if not name.startswith(".")]


async def _fetch(
    model: "Model", sources: Sequence[str], blobs: BlobStore, on_bytes: Callable[[int], None] | None = None
) -> Path:
    pinned = dataclasses.replace(model, sources=tuple(sources))
    keeper = Keeper(blobs, Bounds(None, 0))
    return (await hydrate_one(pinned, supply=Supply(), keeper=keeper, on_bytes=on_bytes)).path


def _start_fetch(model: "Model", source: str, blobs: BlobStore) -> subprocess.Popen[bytes]:
    arguments = [str(blobs.root), model.sha256, str(model.size), source]
    return subprocess.Popen([sys.executable, "-c", _FETCH, *arguments], stderr=subprocess.PIPE)


async def test_a_file_comes_whole_in_several_ranges(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/a%20b+c%C3%A9.bin"] = content
    counted: list[int] = []

    address = web.url("/a%20b+c%C3%A9.bin") + "?sig=1%2F2"
    path = await _fetch(model, [address], blobs, counted.append)

    assert path == blobs.root / "sha256" / model.sha256[:2] / model.sha256
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o444
    assert sum(counted) == model.size
    ranges = [wanted.removeprefix("bytes=").split("-") for _, wanted in web.requests if wanted]
    assert len(ranges) == len(web.requests) > 2
    assert sum(int(last) + 1 - int(first) for first, last in ranges) == model.size
    assert _files(blobs.root) == [f"sha256/{model.sha256[:2]}/{model.sha256}"]


async def test_a_file_that_is_here_asks_no_source(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(content)
    await _fetch(model, [str(tmp_path / "source")], blobs)

    assert await _fetch(model, [web.url("/m")], blobs) == blobs.path(model.sha256)
    assert web.requests == []


@pytest.mark.parametrize("fault", ["503 2", "truncate-once", "reset-once", "norange"])
async def test_a_passing_fault_of_the_only_source_costs_no_byte(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore, fault: str
) -> None:
    web.files["/m"] = content

    path = await _fetch(model, [web.url("/m", fault)], blobs)

    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("html", "19 bytes of text/html instead of 34603012"),
        ("short", "34603011 bytes of application/octet-stream instead of 34603012"),
        ("truncate", "the connection"),
        ("503", "answered 503"),
        ("changing", "changed during the transfer"),
        ("wrong", "other bytes: their SHA-256 is"),
    ],
)
async def test_a_source_at_fault_is_named_and_shows_no_file(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore, fault: str, words: str
) -> None:
    web.files["/m"] = content

    with pytest.raises(TransferError) as caught:
        await _fetch(model, [web.url("/m", fault) + "?X-Amz-Signature=5ecret"], blobs)

    assert words in str(caught.value)
    assert f"{web.address}/m" in str(caught.value)
    assert "5ecret" not in repr(caught.value)
    assert isinstance(caught.value, CorruptBytes) == (fault == "wrong")
    assert _seen(blobs.root) == []


async def test_the_next_source_is_tried_after_every_fault(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore, tmp_path: Path
) -> None:
    web.files |= dict.fromkeys(("/html", "/wrong", "/good"), content)
    (tmp_path / "half").write_bytes(content[: len(content) // 2])
    counted: list[int] = []
    sources = [
        str(tmp_path / "absent"),
        str(tmp_path / "half"),
        web.url("/absent"),
        web.url("/html", "html"),
        web.url("/wrong", "wrong"),
        web.url("/good"),
    ]

    path = await _fetch(model, sources, blobs, counted.append)

    assert path.read_bytes() == content
    assert sum(counted) == model.size
    assert min(counted) == -model.size


async def test_a_given_up_transfer_lists_each_source_with_its_failure(
    web: "WebServer", model: "Model", blobs: BlobStore, tmp_path: Path
) -> None:
    absent = str(tmp_path / "absent")
    closed = "http://user:pass@127.0.0.1:9/m?token=5ecret"

    with pytest.raises(TransferError) as caught:
        await _fetch(model, [absent, web.url("/m"), closed], blobs)

    assert str(caught.value).splitlines() == [
        f"no source gave {model.sha256} ({model.size} bytes):",
        f"  {web.address}/m: not there",
        "  http://***@127.0.0.1:9/m?token=***: cannot be reached",
        f"  {absent}: not there",
    ]


async def test_a_password_in_an_address_is_sent_as_basic_authorization(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/m"] = content

    await _fetch(model, [web.url("/m").replace("//", "//user:p%40ss@")], blobs)

    assert web.authorization == "Basic dXNlcjpwQHNz"


async def test_a_small_file_takes_one_request_without_a_range(
    web: "WebServer", model: "Model", blobs: BlobStore
) -> None:
    data = web.files["/small"] = b"few bytes"
    small = dataclasses.replace(model, sha256=hashlib.sha256(data).hexdigest(), size=len(data))

    path = await _fetch(small, [web.url("/small")], blobs)

    assert path.read_bytes() == data
    assert web.requests == [("/small", None)]


async def test_an_empty_file_is_a_file(model: "Model", blobs: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    empty = dataclasses.replace(model, sha256=hashlib.sha256().hexdigest(), size=0)

    path = await _fetch(empty, [str(tmp_path / "empty")], blobs)

    assert path.read_bytes() == b""


async def test_a_blob_of_the_wrong_size_is_quarantined_and_fetched_again(
    model: "Model", content: bytes, blobs: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "source").write_bytes(content)
    path = blobs.path(model.sha256)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"torn")

    await _fetch(model, [str(tmp_path / "source")], blobs)

    assert path.read_bytes() == content
    assert (blobs.root / "quarantine" / model.sha256).read_bytes() == b"torn"


async def test_a_full_disk_blames_the_cache_and_no_source(
    model: "Model", content: bytes, blobs: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(content)

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, os.strerror(28))

    # Patched: filling a disk for real would need one of our own.
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TransferError, match="the cache cannot be written: No space left"):
        await _fetch(model, [str(tmp_path / "source"), "/absent"], blobs)

    assert _files(blobs.root) == []


async def test_a_cancelled_fetch_ends_at_once_and_shows_nothing(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/m"] = content
    task = asyncio.create_task(_fetch(model, [web.url("/m", "hold")], blobs))
    await asyncio.to_thread(web.held.wait, 20)
    task.cancel()
    web.release.set()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)

    assert _seen(blobs.root) == []
    assert (await _fetch(model, [web.url("/m")], blobs)).read_bytes() == content


async def test_a_cancel_does_not_wait_for_a_stalled_server(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/m"] = content
    task = asyncio.create_task(_fetch(model, [web.url("/m", "hold")], blobs))
    await asyncio.to_thread(web.held.wait, 20)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)

    assert not blobs.has(model.sha256)
    web.release.set()
    # The read that was left behind ends by itself, and lets go of the file.
    for thread in [each for each in threading.enumerate() if each.name == "fetch"]:
        await asyncio.to_thread(thread.join, 20)
    assert (await _fetch(model, [web.url("/m")], blobs)).read_bytes() == content


def test_a_killed_process_leaves_nothing_to_be_seen_and_its_rest_is_removed(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/m"] = content
    process = _start_fetch(model, web.url("/m", "hold"), blobs)
    assert web.held.wait(30)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    left = _files(blobs.root)
    web.release.set()
    web.faults.clear()

    asyncio.run(_fetch(model, [web.url("/m")], blobs))

    assert {each.rpartition("/")[0] for each in left} == {f".partial/{model.sha256}"}
    assert _files(blobs.root) == [f"sha256/{model.sha256[:2]}/{model.sha256}"]
    assert blobs.path(model.sha256).read_bytes() == content


def test_a_file_that_another_process_brings_is_waited_for_and_asked_for_once(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/held"] = content
    process = _start_fetch(model, web.url("/held", "hold"), blobs)
    assert web.held.wait(30)
    threading.Timer(0.5, web.release.set).start()

    path = asyncio.run(_fetch(model, [web.url("/absent")], blobs))

    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, b"")
    assert path.read_bytes() == content
    assert "/absent" not in web.seen
    assert _files(blobs.root) == [f"sha256/{model.sha256[:2]}/{model.sha256}"]


def test_the_process_that_is_told_to_end_does_not_wait_for_a_stalled_server(
    web: "WebServer", model: "Model", content: bytes, blobs: BlobStore
) -> None:
    web.files["/m"] = content
    process = _start_fetch(model, web.url("/m", "hold"), blobs)
    assert web.held.wait(30)
    pause(0.1)

    process.send_signal(signal.SIGINT)

    process.communicate(timeout=12)
    assert process.returncode != 0
