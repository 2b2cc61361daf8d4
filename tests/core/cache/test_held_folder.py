"""One holder of a folder at a time, however often it is removed and made again."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from comfyfarm.cache.held_folder import HeldFolder, hold_folder, is_held, try_folder


class _GaveUp(Exception):
    pass


def _give_up() -> None:
    raise _GaveUp


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    held = hold_folder(folder, stop=_give_up)

    assert is_held(folder)
    assert try_folder(folder) is None
    with pytest.raises(_GaveUp):
        hold_folder(folder, stop=_give_up)
    held.release()
    held.release()
    assert not is_held(folder)
    again = try_folder(folder)
    assert again is not None
    again.release()


def test_a_folder_that_nobody_ever_held_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "nowhere")


def test_a_holder_removes_the_folder_and_the_empty_one_above(tmp_path: Path) -> None:
    held = hold_folder(tmp_path / "a" / "b", stop=_give_up)
    held.remove()
    held.remove()

    assert list(tmp_path.iterdir()) == []


def test_what_lies_beside_keeps_the_folder_above(tmp_path: Path) -> None:
    other = hold_folder(tmp_path / "a" / "c", stop=_give_up)
    hold_folder(tmp_path / "a" / "b", stop=_give_up).remove()

    assert [path.name for path in (tmp_path / "a").iterdir()] == ["c"]
    other.release()


def test_a_holder_never_removes_the_folder_of_the_next(tmp_path: Path) -> None:
    """Many come, wait, remove and come again: never two at once, and none without a folder."""
    folder, inside, most = tmp_path / "a" / "b", 0, 0

    def come_and_go(n: int) -> None:
        nonlocal inside, most
        for turn in range(40):
            held: HeldFolder | None = None
            while held is None:
                held = try_folder(folder)
            inside += 1
            most = max(most, inside)
            (folder / "mine").write_bytes(b"%d" % n)
            assert (folder / "mine").read_bytes() == b"%d" % n
            (folder / "mine").unlink()
            inside -= 1
            if (turn + n) % 3:
                held.remove()
            else:
                held.release()

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1
    assert inside == 0


_HOLD = """
import sys
from pathlib import Path
from comfyfarm.cache.held_folder import hold_folder
held = hold_folder(Path(sys.argv[1]), stop=lambda: None)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_dead_process_holds_nothing(tmp_path: Path) -> None:
    call = [sys.executable, "-c", _HOLD, str(tmp_path / "a")]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert is_held(tmp_path / "a")
        child.kill()
        child.wait()

    hold_folder(tmp_path / "a", stop=_give_up).remove()
