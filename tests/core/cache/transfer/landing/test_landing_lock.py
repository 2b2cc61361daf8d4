"""One landing for one content, over all threads and processes."""

import contextlib
import errno
import fcntl
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.cache.transfer.landing import Landing, open_landing

if TYPE_CHECKING:
    from tests.core.cache.transfer.landing.conftest import Land

MIB = CHUNK_BYTES


def test_one_lands_a_file_and_others_wait_for_it(land: "type[Land]", folder: Path) -> None:
    landing = open_landing(folder, MIB, stop=land.go_on)
    with pytest.raises(land.GaveUp):
        open_landing(folder, MIB, stop=land.give_up)
    asked = threading.Event()
    after: list[Landing] = []
    waiting = threading.Thread(target=lambda: after.append(open_landing(folder, MIB, stop=asked.set)))
    waiting.start()
    assert asked.wait(10)
    land.bring(landing, land.noise(MIB), 0)
    landing.close(keep=True)
    waiting.join()

    assert after[0].resumed_bytes == MIB
    after[0].close(keep=False)


def test_who_waited_for_a_file_that_has_landed_begins_in_a_new_folder(
    land: "type[Land]", folder: Path, tmp_path: Path
) -> None:
    landing = open_landing(folder, MIB, stop=land.go_on)
    asked = threading.Event()
    after: list[Landing] = []
    waiting = threading.Thread(target=lambda: after.append(open_landing(folder, MIB, stop=asked.set)))
    waiting.start()
    assert asked.wait(10)
    land.bring(landing, land.noise(MIB), 0)
    landing.publish(tmp_path / "final", mode=0o444)
    waiting.join()

    assert (after[0].resumed_bytes, (folder / "lock").exists()) == (0, True)
    after[0].close(keep=False)
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@pytest.mark.parametrize("name", ["hash", "sync"])
def test_a_landing_that_cannot_begin_holds_nothing(
    land: "type[Land]", folder: Path, no_thread: Callable[[str], None], name: str
) -> None:
    pool = BufferPool(4)
    no_thread(name)
    with pytest.raises(OSError, match="can't start new thread") as failed:
        open_landing(folder, MIB, stop=land.give_up, pool=pool)
    no_thread("")

    open_landing(folder, MIB, stop=land.give_up, pool=pool).close(keep=False)
    assert failed.value.filename == str(folder)
    assert pool._made == 0


_HOLD = """
import sys
from pathlib import Path
from comfyfarm.cache.transfer.landing import open_landing
landing = open_landing(Path(sys.argv[1]), 1 << 20, stop=lambda: None)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def _held_by_another(folder: Path) -> Iterator[Callable[[], None]]:
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"

    def kill() -> None:
        child.kill()
        child.wait()

    with child:
        yield kill
        kill()


def test_another_process_waits_likewise_until_the_first_is_dead(land: "type[Land]", folder: Path) -> None:
    with _held_by_another(folder) as kill:
        with pytest.raises(land.GaveUp):
            open_landing(folder, MIB, stop=land.give_up)
        kill()
        landing = open_landing(folder, MIB, stop=land.give_up)
    assert landing.resumed_bytes == 0
    landing.close(keep=False)
    assert not folder.exists()


def test_without_locks_each_lands_in_a_folder_of_its_own(
    land: "type[Land]", folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    # Patched because no file system without locks can be had here.
    monkeypatch.setattr(fcntl, "flock", refuse)
    data = land.noise(MIB)
    first, second = (open_landing(folder, MIB, stop=land.give_up) for _ in range(2))
    for landing in (first, second):
        land.fill(landing, data)
        assert landing.digest(land.go_on) == hashlib.sha256(data).hexdigest()
    first.publish(tmp_path / "final", mode=0o444)
    second.close(keep=True)

    assert (tmp_path / "final").read_bytes() == data
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["final"]
