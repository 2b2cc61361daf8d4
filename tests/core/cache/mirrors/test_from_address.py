"""A file that is behind an address, here for as long as it takes."""

import asyncio
import errno
import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.mirrors.from_address import fetched, sweep_leftovers
from comfyfarm.cache.mirrors.probe import Probe
from comfyfarm.errors import CorruptBytes, InputError, TransferError, UsageError

if TYPE_CHECKING:
    from tests.core.cache.conftest import WebServer


def _untold(_count: int) -> None:
    """Nobody asked."""


async def _size(
    address: str, size: int, cache: Path, *, sha256: str | None = None, told: Callable[[int], None] = _untold
) -> int:
    """Fetch it; the size of what was there, under a name of its own."""
    found = Probe(size=size, name="m.pt")
    async with fetched(address, found, cache, sha256=sha256, on_bytes=told) as path:
        assert path.is_relative_to(cache)
        return path.stat().st_size


def _left(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


async def test_the_file_is_here_and_gone_at_the_end(web: "WebServer", content: bytes, tmp_path: Path) -> None:
    web.files["/m"] = content
    told: list[int] = []

    async with fetched(
        web.url("/m"), Probe(size=len(content), name="m"), tmp_path, on_bytes=told.append
    ) as path:
        digest = await asyncio.to_thread(lambda: hashlib.sha256(path.read_bytes()).hexdigest())
        assert digest == hashlib.sha256(content).hexdigest()
        sweep_leftovers(tmp_path)
        assert path.exists(), "a clean-up leaves alone what is in use"

    assert sum(told) == len(content)
    assert _left(tmp_path) == []


async def test_what_a_killed_command_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".partial" / "mirror-99999-abcdef12"
    left.mkdir(parents=True)
    (left / "data").write_bytes(b"left")
    (left / "lock").touch()
    sweep_leftovers(tmp_path)
    assert _left(tmp_path) == []


class _Swept(Disk):
    """Another command cleans up after each step."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def rename(self, path: Path, to: Path) -> None:
        super().rename(path, to)
        sweep_leftovers(self.cache)


async def test_another_commands_clean_up_never_takes_what_has_just_come(
    web: "WebServer", content: bytes, tmp_path: Path
) -> None:
    web.files["/m"] = content
    found = Probe(size=len(content), name="m")

    async with fetched(web.url("/m"), found, tmp_path, disk=_Swept(tmp_path), on_bytes=_untold) as path:
        assert path.stat().st_size == len(content)


async def test_on_a_disk_without_locks_the_file_comes_as_well(
    web: "WebServer", content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    # Patched because no file system here lacks them.
    monkeypatch.setattr(fcntl, "flock", flock)
    web.files["/m"] = content

    assert await _size(web.url("/m"), len(content), tmp_path) == len(content)
    assert _left(tmp_path) == []


async def test_a_full_disk_that_keeps_the_file_is_no_failure(
    web: "WebServer", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Disk):
        def step(self, what: str, path: Path) -> None:
            if what == "unlink" and path.parent.name.startswith("mirror-"):
                raise OSError(errno.EROFS, "read-only")

    web.files["/m"] = b"weights"
    async with fetched(
        web.url("/m"), Probe(size=7, name="m"), tmp_path, disk=Broken(), on_bytes=_untold
    ) as path:
        assert path.stat().st_size == 7
    assert "not removed" in caplog.text
    sweep_leftovers(tmp_path)
    assert _left(tmp_path) == []


async def test_a_file_that_is_not_what_it_must_be_is_dropped(web: "WebServer", tmp_path: Path) -> None:
    web.files["/m"] = b"other bytes"
    with pytest.raises(CorruptBytes, match="was expected"):
        await _size(web.url("/m"), 11, tmp_path, sha256="ab" * 32)
    assert _left(tmp_path) == []


async def test_a_source_that_fails_is_named(web: "WebServer", tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="/absent"):
        await _size(web.url("/absent?token=secret"), 5, tmp_path)
    assert _left(tmp_path) == []


async def test_what_came_is_looked_at_before_it_is_used(web: "WebServer", tmp_path: Path) -> None:
    web.files["/m"] = b"version https://git-lfs.github.com/spec/v1\n"
    with pytest.raises(InputError, match="Git LFS pointer"):
        await _size(web.url("/m"), len(web.files["/m"]), tmp_path)
    assert _left(tmp_path) == []


async def test_two_who_fetch_one_address_at_once_both_get_it(
    web: "WebServer", content: bytes, tmp_path: Path
) -> None:
    web.files["/m"] = content
    sizes = await asyncio.gather(*(_size(web.url("/m"), len(content), tmp_path) for _ in range(2)))
    assert sizes == [len(content)] * 2
    assert _left(tmp_path) == []


async def test_a_cancelled_fetch_ends_and_leaves_nothing(
    web: "WebServer", content: bytes, tmp_path: Path
) -> None:
    web.files["/m"] = content
    work = asyncio.create_task(_size(web.url("/m", "hold"), len(content), tmp_path))
    await asyncio.to_thread(web.held.wait, 30)

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    web.release.set()

    assert not list((tmp_path / ".partial").glob("mirror-*/data"))


async def test_a_full_disk_is_named(web: "WebServer", tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    web.files["/m"] = b"x"
    with pytest.raises(TransferError, match="cannot be written"):
        await _size(web.url("/m"), 1, tmp_path / "cache")


async def test_a_folder_is_no_address(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no address"):
        await _size(str(tmp_path), 1, tmp_path)


async def test_behind_a_proxy_the_library_fetches(
    web: "WebServer", content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    # What is asked through a proxy has its whole address in the request line; nothing else listens there.
    proxied = "http://host.invalid/m"
    web.files[proxied] = content
    monkeypatch.setenv("HTTP_PROXY", web.address)

    assert await _size(proxied, len(content), tmp_path) == len(content)
