"""Temporary files: held while they are written, rubbish when their process is dead."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.temporary import open_temporary, sweep


class _Noting(Disk):
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, what: str, path: Path) -> None:
        self.steps.append(what)


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError):
        open_temporary(tmp_path / "file" / "below")


def test_every_change_goes_through_the_disk(tmp_path: Path) -> None:
    disk = _Noting()
    temporary = open_temporary(tmp_path / "a", levels=1, disk=disk)
    temporary.publish(tmp_path / "b" / "final")
    open_temporary(tmp_path / "a", levels=1, disk=disk).discard()

    assert disk.steps == [
        *("open_file", "make_folder", "open_file"),
        *("sync", "make_folder", "rename", "sync_folder", "remove_folder"),
        *("open_file", "make_folder", "open_file", "unlink", "remove_folder"),
    ]


def test_files_of_others_that_lie_beside_are_left_alone(tmp_path: Path) -> None:
    names = ("data", "journal", "lock", "1-2-3", "x-dead", ".partial-1-dead")
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "12-dead").touch()

    assert sweep(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert sweep(tmp_path, prefix=".partial-") == 1


_HOLD = """
import sys
from pathlib import Path
from comfyfarm.cache.temporary import open_temporary
print(open_temporary(Path(sys.argv[1])).path, flush=True)
sys.stdin.read()
"""


def test_a_temporary_is_swept_once_its_process_is_dead(tmp_path: Path) -> None:
    call = [sys.executable, "-c", _HOLD, str(tmp_path / "a")]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        path = Path(child.stdout.readline().decode().strip())
        assert sweep(tmp_path / "a") == 0
        assert path.exists()
        child.kill()
        child.wait()

    assert sweep(tmp_path / "a") == 1
    assert not path.exists()


def test_those_who_come_and_go_at_once_never_miss_their_folder(tmp_path: Path) -> None:
    failures: list[OSError] = []

    def come_and_go() -> None:
        try:
            for n in range(60):
                temporary = open_temporary(tmp_path / "p" / "sha", levels=2)
                os.write(temporary.fd, b"x")
                if n % 2:
                    temporary.publish(tmp_path / "final")
                temporary.discard()
        except OSError as exc:
            failures.append(exc)

    threads = [threading.Thread(target=come_and_go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
