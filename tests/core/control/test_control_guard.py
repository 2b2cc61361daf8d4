"""What the guard runs ends with the guard's parent, however that ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.ledger.owner import is_alive

WaitUntil = Callable[[Callable[[], bool]], None]

# Ignores what it can, has a child of its own, and says when both are there.
_STUBBORN = """
import pathlib, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
signal.pause()
"""
_POLITE = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).write_text('1'); signal.pause()"
_PARENT = """
import subprocess, sys
command = [sys.executable, "-m", "comfyfarm.control.guard", *sys.argv[1:]]
subprocess.Popen(command, stdin=subprocess.PIPE).wait()
"""


def _guard(arguments: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "comfyfarm.control.guard", *arguments], stdin=subprocess.PIPE
    )


def _child(pid_file: Path) -> tuple[int, str]:
    pid, start = pid_file.read_text().split()
    return int(pid), start


def test_the_exit_code_is_the_commands() -> None:
    with _guard(["--", sys.executable, "-c", "raise SystemExit(7)"]) as guard:
        assert guard.wait(timeout=20) == 7


@pytest.mark.parametrize("how", ["kill", "close"])
def test_the_command_ends_with_the_parent(tmp_path: Path, wait_until: WaitUntil, how: str) -> None:
    ready, pid_file = tmp_path / "ready", tmp_path / "pid"
    arguments = ["--pid-file", str(pid_file), "--", sys.executable, "-c", _POLITE, str(ready)]
    command = [sys.executable, "-c", _PARENT, *arguments]
    if how == "close":
        command = [sys.executable, "-m", "comfyfarm.control.guard", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        wait_until(ready.exists)
        child = _child(pid_file)
        assert is_alive(*child)

        if how == "kill":
            parent.kill()
        elif parent.stdin is not None:
            parent.stdin.close()

        wait_until(lambda: not is_alive(*child))


def test_a_stubborn_command_is_killed_with_its_children_within_10_s(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    ready, pid_file = tmp_path / "ready", tmp_path / "pid"
    command = ["--pid-file", str(pid_file), "--", sys.executable, "-c", _STUBBORN, str(ready)]
    with _guard(command) as guard:
        wait_until(lambda: ready.exists() and ready.read_text() != "")
        grandchild = int(ready.read_text())
        began = SystemClock().monotonic()

        assert guard.stdin is not None
        guard.stdin.close()

        assert guard.wait(timeout=20) == 128 + signal.SIGKILL
        assert SystemClock().monotonic() - began < 10.0
    assert not is_alive(*_child(pid_file))
    wait_until(lambda: not _exists(grandchild))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and ") Z" in stat.read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_guard_ends_the_command(
    tmp_path: Path, wait_until: WaitUntil, number: signal.Signals
) -> None:
    ready, pid_file = tmp_path / "ready", tmp_path / "pid"
    command = [
        "--pid-file",
        str(pid_file),
        "--signal",
        "TERM",
        "--",
        sys.executable,
        "-c",
        _POLITE,
        str(ready),
    ]
    with _guard(command) as guard:
        wait_until(ready.exists)

        guard.send_signal(number)

        assert guard.wait(timeout=20) == 128 + signal.SIGTERM
    assert not is_alive(*_child(pid_file))
