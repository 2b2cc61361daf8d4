"""A transfer that is killed, or told that the disk is full or read-only, at every one of its steps.

Whatever happens: the blob is whole or invisible, what the journal says need not come again, and a second run
ends well.
"""

import contextlib
import errno
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import is_held
from comfyfarm.cache.transfer import syncer
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.journal import parse
from comfyfarm.cache.transfer.landing import open_landing

MIB = CHUNK_BYTES
DATA = random.Random(3).randbytes(2 * MIB + 7)
SHA = hashlib.sha256(DATA).hexdigest()
KEY = f"sha256/{SHA[:2]}/{SHA}"
MAY_BE_LEFT = {KEY, *(f".partial/{SHA}/{name}" for name in ("data", "journal", "lock"))}
CLEARING = {"unlink", "remove_folder"}
TMPFS = ("-t", "tmpfs", "-o")

_KILLED_AT_EVERY_STEP = """
import hashlib, json, os, random, signal, sys, threading
from pathlib import Path
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.transfer import syncer
from comfyfarm.cache.transfer.journal import parse
from comfyfarm.cache.transfer.landing import open_landing

MIB = 1 << 20
data = random.Random(3).randbytes(2 * MIB + 7)
sha = hashlib.sha256(data).hexdigest()
syncer.SYNC_BYTES = 1  # the journal's thread has something to do after each chunk


class Deadly(Disk):
    def __init__(self, left):
        self.left, self.lock = left, threading.Lock()

    def step(self, what, path):
        with self.lock:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def land(root, disk):
    blobs, fetched = BlobStore(root, disk), 0
    if blobs.has(sha, size=len(data)):
        return 0
    landing = open_landing(blobs.partial(sha), len(data), disk=disk, stop=lambda: None)
    try:
        for stretch in landing.missing():
            for at in stretch[::MIB]:
                chunk = landing.buffer(at, lambda: None)
                chunk.view[:] = data[at : at + len(chunk.view)]
                fetched += len(chunk.view)
                landing.put(chunk)
                threading.Event().wait(0.002)  # the journal's thread gets its turn
        assert landing.digest(lambda: None) == sha
        blobs.adopt_landing(landing, sha)
    finally:
        landing.close(keep=True)
    return fetched


def in_child(work):
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    status = os.waitpid(pid, 0)[1]
    with open(reading) as answer:
        text = answer.read()
    return json.loads(text) if text else None, os.WIFSIGNALED(status)


for n in range(1, 500):
    root = Path(sys.argv[1]) / str(n)
    fetched, killed = in_child(lambda: land(root, Deadly(n)))
    blob, journal = BlobStore(root).path(sha), BlobStore(root).partial(sha) / "journal"
    visible = blob.read_bytes() == data if blob.exists() else None
    there = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    here = parse(journal.read_bytes(), len(data)).here.here_bytes() if journal.exists() else 0
    again, killed_again = in_child(lambda: land(root, Disk()))
    BlobStore(root).sweep()
    left = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    print(json.dumps({
        "n": n, "killed": killed, "visible": visible, "there": there, "here": here, "again": again,
        "right": blob.read_bytes() == data, "mode": blob.stat().st_mode & 0o777, "left": left,
    }), flush=True)
    if not killed:
        break
"""


def test_a_kill_at_any_step_leaves_nothing_or_a_partial_or_the_whole_blob(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_EVERY_STEP, str(tmp_path)], stdout=subprocess.PIPE, check=True
    )
    lives: list[dict[str, Any]] = [json.loads(line) for line in told.stdout.splitlines()]

    *killed, last = lives
    assert len(killed) > 20
    assert (last["killed"], last["there"]) == (False, [KEY])
    for life in killed:
        assert life["killed"], life
        assert life["visible"] in {None, True}, life
        assert set(life["there"]) <= MAY_BE_LEFT, life
        assert (life["right"], life["mode"]) == (True, 0o444), life
        assert life["again"] == (0 if life["visible"] else len(DATA) - life["here"]), life
        assert life["left"] == [KEY], life
    # The test would say little if nothing had ever been resumed.
    assert {life["here"] for life in killed if not life["visible"]} > {0}


class _Refusing(Disk):
    """Its n-th step fails; and all that follow, when the disk is read-only now."""

    def __init__(self, n: int, number: int) -> None:
        self._left = n
        self._number = number
        self._lock = threading.Lock()
        self.refused: list[str] = []

    def step(self, what: str, path: Path) -> None:
        with self._lock:
            self._left -= 1
            is_refused = self._left == 0 or (self._left < 0 and self._number == errno.EROFS)
        if is_refused:
            self.refused.append(what)
            raise OSError(self._number, os.strerror(self._number))


def _land(root: Path, disk: Disk, data: bytes = DATA) -> int:
    """Bring what is missing; returns how many bytes that were."""
    sha, fetched = hashlib.sha256(data).hexdigest(), 0
    blobs = BlobStore(root, disk)
    if blobs.has(sha, size=len(data)):
        return 0
    landing = open_landing(blobs.partial(sha), len(data), disk=disk, stop=lambda: None)
    try:
        for at in [at for stretch in landing.missing() for at in stretch[::MIB]]:
            chunk = landing.buffer(at, lambda: None)
            chunk.view[:] = data[at : at + len(chunk.view)]
            fetched += len(chunk.view)
            landing.put(chunk)
        assert landing.digest(lambda: None) == sha
        blobs.adopt_landing(landing, sha)
    finally:
        landing.close(keep=True)
    return fetched


def _failure(root: Path, disk: Disk) -> OSError | None:
    try:
        _land(root, disk)
    except OSError as exc:
        return exc
    return None


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_any_step_is_named_and_a_second_run_ends_well(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Patched because 128 MiB are long for a test.
    monkeypatch.setattr(syncer, "SYNC_BYTES", 1)
    raised, root = 0, tmp_path
    for n in range(1, 500):
        root = tmp_path / str(n)
        disk, blob = _Refusing(n, number), BlobStore(root).path(SHA)
        failure = _failure(root, disk)
        if failure is None:
            # Only what is left to be cleared away may fail in silence: the blob is whole.
            assert set(disk.refused) <= CLEARING
            assert blob.exists()
        else:
            raised += 1
            assert (failure.errno, str(root) in str(failure.filename)) == (number, True)
        if blob.exists():
            assert blob.read_bytes() == DATA
        assert _files(root) <= MAY_BE_LEFT
        _land(root, Disk())
        assert (blob.read_bytes(), blob.stat().st_mode & 0o777) == (DATA, 0o444)
        if not disk.refused:
            break
    assert raised > 15
    assert _files(root) == {KEY}


class _NoReserve(Disk):
    """A file system that takes no room beforehand: it is full in the middle."""

    def reserve(self, fd: int, size: int, path: Path) -> None:
        os.truncate(fd, size)


class _Small(_NoReserve):
    """Stands in for a small file system where none can be mounted: 8 MiB of data."""

    room = 8 * MIB

    def write_at(self, fd: int, data: Any, at: int, path: Path) -> None:
        if at + len(data) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_at(fd, data, at, path)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[_NoReserve]:
    """8 MiB of a real tmpfs where we may mount one, so that the system itself says that it is full."""
    folder.mkdir()
    mount = shutil.which("mount")
    if (
        mount is None
        or os.geteuid()
        or subprocess.run([mount, *TMPFS, "size=8m", "tmpfs", folder]).returncode
    ):
        yield _Small()
        return
    try:
        yield _NoReserve()
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_full_in_the_middle_keeps_what_came_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    data = random.Random(4).randbytes(12 * MIB)
    root = tmp_path / "small"
    with _small_disk(root) as disk:
        with pytest.raises(OSError, match="No space left") as full:
            _land(root, disk, data)
        assert full.value.errno == errno.ENOSPC
        (partial,) = (root / ".partial").iterdir()
        assert not BlobStore(root).has(partial.name)
        assert 0 < (partial / "data").stat().st_blocks * 512 <= 8 * MIB
        assert not is_held(partial)
        if isinstance(disk, _Small):
            disk.room = 24 * MIB
        else:
            subprocess.run(["mount", *TMPFS, "remount,size=24m", root], check=True)
        fetched = _land(root, disk, data)
        assert 0 < fetched <= 6 * MIB
        assert BlobStore(root).path(hashlib.sha256(data).hexdigest()).read_bytes() == data


def test_a_file_that_does_not_fit_is_refused_before_the_first_byte(tmp_path: Path) -> None:
    root = tmp_path / "small"
    with _small_disk(root) as disk:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        if isinstance(disk, _Small):
            # The system refuses a file of this length, if not one on this file system.
            resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, before[1]))
        try:
            with pytest.raises(OSError, match=r"No space left|too large"):
                open_landing(root / ".partial" / SHA, 64 * MIB, stop=lambda: None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert _files(root) == set()
        assert not (root / ".partial").exists()


class _Greedy(Disk):
    """Takes all the room there is, and then says that it is not enough, as ext4 does."""

    def reserve(self, fd: int, size: int, path: Path) -> None:
        super().reserve(fd, size, path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_partial_that_finds_the_disk_full_keeps_no_more_than_it_had(tmp_path: Path) -> None:
    folder = tmp_path / ".partial" / SHA
    landing = open_landing(folder, 8 * MIB, stop=lambda: None)
    landing.put(landing.buffer(0, lambda: None))
    landing.close(keep=True)

    with pytest.raises(OSError, match="No space left") as full:
        open_landing(folder, 8 * MIB, disk=_Greedy(), stop=lambda: None)

    assert full.value.filename == str(folder)
    assert (folder / "data").stat().st_size == MIB
    assert (folder / "data").stat().st_blocks * 512 < 2 * MIB
    again = open_landing(folder, 8 * MIB, stop=lambda: None)
    assert again.resumed_bytes == MIB
    again.close(keep=False)


def test_a_journal_torn_by_a_power_failure_costs_only_what_it_lost(tmp_path: Path) -> None:
    root, size = tmp_path / "cache", len(DATA)
    landing = open_landing(BlobStore(root).partial(SHA), size, stop=lambda: None)
    for at in (0, MIB):
        chunk = landing.buffer(at, lambda: None)
        chunk.view[:] = DATA[at : at + MIB]
        landing.put(chunk)
    landing.close(keep=True)
    journal = BlobStore(root).partial(SHA) / "journal"
    with journal.open("ab") as file:
        file.write(b'{"here":[[20971')
    assert parse(journal.read_bytes(), size).here.here_bytes() == 2 * MIB

    assert _land(root, Disk()) == 7
    assert _files(root) == {KEY}
