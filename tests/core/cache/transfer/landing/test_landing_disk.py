"""How a landing writes, what it makes durable, and what it says of a disk that fails."""

import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.transfer import syncer
from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.direct import open_direct
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.landing_folder import open_folder
from comfyfarm.cache.transfer.read_ahead import ReadAhead
from comfyfarm.cache.transfer.trouble import Trouble

if TYPE_CHECKING:
    from tests.core.cache.transfer.landing.conftest import Land

MIB = CHUNK_BYTES


class _Watching(Disk):
    """Notes how the data is written; `gate` holds writers up."""

    def __init__(self) -> None:
        self.writes: set[tuple[bool, int, int]] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.is_at_gate = threading.Event()

    def write_at(self, fd: int, data: object, at: int, path: Path) -> None:
        if isinstance(data, memoryview):
            is_direct = bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
            self.writes.add((is_direct, len(data) % 4096, at % 4096))
            self.is_at_gate.set()
            assert self.gate.wait(30)
        super().write_at(fd, data, at, path)  # type: ignore[arg-type]


def test_data_goes_past_the_page_cache_in_aligned_pieces(land: "type[Land]", folder: Path) -> None:
    disk, data = _Watching(), land.noise(3 * MIB + 5)
    landing = open_landing(folder, len(data), disk=disk, stop=land.go_on)
    land.fill(landing, data)
    landing.close(keep=False)

    assert disk.writes in ({(True, 0, 0)}, {(False, 0, 0), (False, 5, 0)})


def test_closing_waits_for_those_who_write(land: "type[Land]", folder: Path) -> None:
    disk, data = _Watching(), land.noise(MIB)
    landing = open_landing(folder, len(data), disk=disk, stop=land.go_on)
    disk.gate.clear()
    brought: list[bool] = []
    writer = threading.Thread(target=lambda: brought.append(land.bring(landing, data, 0)))
    writer.start()
    assert disk.is_at_gate.wait(30)
    closer = threading.Thread(target=lambda: landing.close(keep=True))
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    disk.gate.set()
    closer.join()
    writer.join()

    assert brought == [True]
    assert land.journalled(folder, len(data)) == (range(MIB),)


def test_after_a_failed_sync_nothing_more_is_journalled(land: "type[Land]", folder: Path) -> None:
    disk = _Failing()
    opened = open_folder(folder, 2 * MIB, disk=disk, stop=land.go_on)
    keeper = syncer.Syncer(opened.file, opened.journal, size=2 * MIB, disk=disk, trouble=Trouble())
    keeper.wrote(0)
    disk.what = "sync_data"
    with pytest.raises(OSError, match="broken"):
        keeper.flush()
    disk.what = ""
    keeper.wrote(MIB)
    keeper.flush()
    keeper.end()
    opened.let_go()

    assert land.journalled(folder, 2 * MIB) == ()


def test_what_was_read_ahead_is_the_next_chunk_or_dropped(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"a" * MIB + b"b" * MIB)
    pool = BufferPool(2)
    pool.open_shelf()
    file = open_direct(tmp_path / "data", disk=Disk())
    ahead = ReadAhead(file, pool)

    assert ahead.take(0) is None
    ahead.begin(MIB, MIB)
    buffer = ahead.take(MIB)
    assert buffer is not None
    assert buffer[:] == b"b" * MIB
    ahead.begin(0, MIB)
    assert ahead.take(MIB) is None
    ahead.begin(2 * MIB, MIB)
    assert ahead.take(2 * MIB) is None
    other = pool.spare_for_reading()
    assert other is not None
    ahead.begin(0, MIB)
    assert ahead.take(0) is None
    pool.give(other)
    ahead.begin(0, MIB)
    ahead.end()
    assert pool.spare_for_reading() is not None
    file.close()


class _NoDirect(Disk):
    """A file system that cannot write past the page cache, and says so late or early."""

    def __init__(self, when: str) -> None:
        self._when = when
        self._direct: set[int] = set()

    def open_file(self, path: Path, flags: int, mode: int = 0o666) -> int:
        if flags & os.O_DIRECT and self._when == "open":
            raise OSError(errno.EINVAL, "not here")
        return super().open_file(path, flags, mode)

    def write_at(self, fd: int, data: object, at: int, path: Path) -> None:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "not here")
        super().write_at(fd, data, at, path)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="this system always writes through the page cache")
@pytest.mark.parametrize("when", ["open", "write"])
def test_a_file_system_without_direct_writes_is_written_through_the_page_cache(
    land: "type[Land]", folder: Path, tmp_path: Path, when: str
) -> None:
    data = land.noise(5 * MIB + 3)
    disk, pool = _NoDirect(when), BufferPool(4, for_readers=1)
    landing = open_landing(folder, len(data), disk=disk, stop=land.go_on, pool=pool)
    land.fill(landing, data)
    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.close(keep=True)
    landing = open_landing(folder, len(data), disk=disk, stop=land.go_on, pool=pool)
    assert landing.resumed_bytes == len(data)
    assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    landing.publish(tmp_path / "final", mode=0o400)

    assert (tmp_path / "final").read_bytes() == data


def test_late_threads_of_a_landing_that_is_closed_do_no_harm(
    land: "type[Land]", folder: Path, tmp_path: Path
) -> None:
    pool = BufferPool(8)
    landing = open_landing(folder, 2 * MIB, stop=land.go_on, pool=pool)
    late, dropped = landing.buffer(0, land.go_on), landing.buffer(MIB, land.go_on)
    landing.close(keep=False)

    assert not landing.put(late)
    landing.drop(dropped)
    with pytest.raises(OSError, match="over"):
        landing.buffer(0, land.go_on)
    assert list(tmp_path.iterdir()) == []
    assert pool._made == 0


class _Failing(Disk):
    """Its steps of one kind fail from now on."""

    what = ""
    error: Exception = OSError(errno.EIO, "broken")

    def step(self, what: str, path: Path) -> None:
        if what == self.what:
            raise self.error


def test_a_broken_disk_is_told_to_everyone_at_once(land: "type[Land]", folder: Path) -> None:
    disk = _Failing()
    landing = open_landing(folder, 4 * MIB, disk=disk, stop=land.go_on)
    data = land.noise(4 * MIB)
    land.bring(landing, data, 0)
    told: list[OSError] = []

    def wait() -> None:
        try:
            landing.digest(land.go_on)
        except OSError as exc:
            told.append(exc)

    waiting = threading.Thread(target=wait)
    waiting.start()
    other = landing.buffer(2 * MIB, land.go_on)
    disk.what = "write_at"
    with pytest.raises(OSError, match="broken") as failed:
        land.bring(landing, data, MIB)
    waiting.join()

    assert failed.value.filename == str(folder / "data")
    assert [(exc.errno, exc.filename) for exc in told] == [(errno.EIO, str(folder / "data"))]
    with pytest.raises(OSError, match="broken"):
        landing.put(other)
    with pytest.raises(OSError, match="broken"):
        landing.buffer(3 * MIB, land.go_on)
    disk.what = ""
    landing.close(keep=True)
    again = open_landing(folder, 4 * MIB, stop=land.go_on)
    assert again.missing() == (range(MIB, 4 * MIB),)
    again.close(keep=False)


def test_no_thread_for_reading_back_is_told_to_who_waits_for_the_hash(
    land: "type[Land]", folder: Path, no_thread: Callable[[str], None]
) -> None:
    pool = BufferPool(4, for_readers=1)
    landing = open_landing(folder, 6 * MIB, stop=land.go_on, pool=pool)
    no_thread("read-ahead")
    for at in range(5 * MIB, -1, -MIB):
        land.bring(landing, land.noise(6 * MIB), at)

    with pytest.raises(OSError, match="can't start new thread"):
        landing.digest(land.go_on)
    landing.close(keep=False)

    assert pool._made == 0


def test_a_sync_that_fails_by_anything_else_is_told_as_well(
    land: "type[Land]", folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because 128 MiB are long for a test.
    monkeypatch.setattr(syncer, "SYNC_BYTES", 1)
    disk = _Failing()
    landing = open_landing(folder, 2 * MIB, disk=disk, stop=land.go_on)
    disk.what, disk.error = "sync_data", MemoryError()
    land.bring(landing, land.noise(2 * MIB), 0)

    with pytest.raises(OSError, match="MemoryError"):
        landing.digest(land.go_on)
    disk.what = ""
    landing.close(keep=False)


def test_bytes_that_could_not_be_made_durable_are_not_journalled_ever(
    land: "type[Land]", folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because 128 MiB are long for a test.
    monkeypatch.setattr(syncer, "SYNC_BYTES", 1)
    disk, data, ticks = _Failing(), land.noise(2 * MIB), threading.Event()
    landing = open_landing(folder, len(data), disk=disk, stop=land.go_on)
    disk.what = "sync_data"
    land.bring(landing, data, 0)

    def come_again() -> None:
        while True:
            landing.drop(landing.buffer(MIB, land.go_on))
            ticks.wait(0.001)

    with pytest.raises(OSError, match="broken"):
        come_again()
    disk.what = ""
    with pytest.raises(OSError, match="broken"):
        landing.publish(tmp_path / "final", mode=0o444)
    landing.close(keep=True)

    assert land.journalled(folder, len(data)) == ()
    assert not (tmp_path / "final").exists()
