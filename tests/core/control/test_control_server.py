"""The control server's life: started, used, asked, killed, found again. PostgreSQL alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from comfyfarm.clock import pause
from comfyfarm.control.server import (
    ControlPaths,
    ControlStatus,
    control_status,
    start_control,
    stop_control,
    use_control,
)
from comfyfarm.errors import ControlUnavailable
from comfyfarm.ledger.owner import is_alive

WaitUntil = Callable[..., None]
FindProcesses = Callable[[Path], list[psutil.Process]]
StartPython = Callable[..., "subprocess.Popen[str]"]

_USER = """
import sys
from pathlib import Path
from comfyfarm.control.server import use_control
with use_control(Path(sys.argv[1]), with_prefect=False) as status:
    print(status.pid, flush=True)
    sys.stdin.read()
"""


_START = """
import sys
from pathlib import Path
from comfyfarm.control.launch import start_control
print(start_control(Path(sys.argv[1]), with_prefect=False).model_dump_json())
"""


def started_by_another(state_dir: Path) -> ControlStatus:
    """By a process that ends at once."""
    command = [sys.executable, "-c", _START, str(state_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return ControlStatus.model_validate_json(done.stdout)


def control(action: str, state_dir: Path) -> "subprocess.CompletedProcess[str]":
    """The command for people."""
    command = [str(Path(sys.executable).with_name("comfyfarm")), "control", action, "--dir", str(state_dir)]
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


def living(status: ControlStatus) -> bool:
    return is_alive(status.pid, status.start)


def test_run_owns_postgresql_until_it_is_asked_to_stop(
    state_dir: Path, start_python: StartPython, wait_until: WaitUntil, find_processes: FindProcesses
) -> None:
    process = start_python(["-m", "comfyfarm.control", "--dir", str(state_dir), "--no-prefect"])
    wait_until(lambda: (status := control_status(state_dir)) is not None and status.healthy)
    status = control_status(state_dir)
    assert status is not None
    assert (status.pid, status.api_url, status.until_unused) == (process.pid, None, False)
    assert status.ledger_url.startswith("postgresql://postgres@/comfyfarm?host=")
    assert json.loads(ControlPaths(state_dir).record.read_text())["pid"] == process.pid

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=20) == 0
    assert control_status(state_dir) is None
    assert find_processes(state_dir) == []


def test_start_status_stop_and_start_on_old_data(state_dir: Path, find_processes: FindProcesses) -> None:
    assert control("status", state_dir).returncode == 3
    assert control("stop", state_dir).stdout == "not running\n"

    started = started_by_another(state_dir)
    assert started.healthy
    assert not started.until_unused
    assert started_by_another(state_dir).pid == started.pid
    told = control("status", state_dir)
    assert (told.returncode, told.stdout.splitlines()[0]) == (0, f"running, pid {started.pid}")

    assert control("stop", state_dir).stdout == "stopped\n"
    assert not living(started)
    assert find_processes(state_dir) == []
    third = start_control(state_dir, with_prefect=False)
    assert third.pid != started.pid
    assert third.ledger_url == started.ledger_url
    assert stop_control(state_dir)
    assert not stop_control(state_dir)


def test_a_server_started_for_use_ends_with_its_last_user(
    state_dir: Path, start_python: StartPython, wait_until: WaitUntil, find_processes: FindProcesses
) -> None:
    lines: list[str] = []
    first = start_python(["-c", _USER, str(state_dir)])
    second = start_python(["-c", _USER, str(state_dir)])
    assert first.stdout is not None
    assert second.stdout is not None
    pid = int(first.stdout.readline())
    assert int(second.stdout.readline()) == pid
    with use_control(state_dir, with_prefect=False, on_line=lines.append) as status:
        assert (status.pid, status.until_unused, status.healthy) == (pid, True, True)
        assert lines == []

        # One of two is killed: the other goes on.
        first.kill()
        first.wait()
    pause(2.5)  # Longer than its look for users; nothing else tells that it stays.
    assert living(status)
    assert (now := control_status(state_dir)) is not None
    assert now.healthy

    second.kill()
    second.wait()

    wait_until(lambda: not living(status))
    assert find_processes(state_dir) == []
    assert not ControlPaths(state_dir).record.exists()


def test_a_child_that_inherits_the_lock_keeps_the_server_up(state_dir: Path, wait_until: WaitUntil) -> None:
    with use_control(state_dir, with_prefect=False) as status:
        assert status.users_fd is not None
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[status.users_fd]
        )
    with child:
        pause(2.5)  # Longer than its look for users.
        assert living(status)
        child.kill()

    wait_until(lambda: not living(status))


def test_a_server_in_use_can_be_told_to_stay(state_dir: Path) -> None:
    with use_control(state_dir, with_prefect=False) as used:
        staying = start_control(state_dir, with_prefect=False)
        assert (staying.pid, staying.until_unused) == (used.pid, False)

    pause(2.5)  # Longer than its look for users.
    assert living(used)


def test_users_that_come_while_a_server_ends_get_a_new_one(state_dir: Path) -> None:
    pids = set()
    for pause_s in (0.0, 0.9, 1.0, 1.1):
        with use_control(state_dir, with_prefect=False) as status:
            assert status.healthy
            assert living(status)
            pids.add(status.pid)
        pause(pause_s)  # Meets the look for users at its worst moments.

    assert len(pids) >= 1


def test_users_that_come_together_start_one_server(state_dir: Path) -> None:
    def use(_: int) -> int:
        with use_control(state_dir, with_prefect=False) as status:
            return status.pid

    with use_control(state_dir, with_prefect=False) as held, ThreadPoolExecutor(4) as pool:
        assert set(pool.map(use, range(4))) == {held.pid}


def test_everything_ends_soon_after_the_server_is_killed_and_the_next_one_goes_on(
    state_dir: Path, wait_until: WaitUntil, find_processes: FindProcesses
) -> None:
    status = start_control(state_dir, with_prefect=False)
    assert len(find_processes(state_dir)) >= 3

    os.kill(status.pid, signal.SIGKILL)

    wait_until(lambda: find_processes(state_dir) == [], timeout_s=10.0)
    assert control_status(state_dir) is None
    with use_control(state_dir, with_prefect=False) as again:
        assert again.healthy
        assert again.ledger_url == status.ledger_url


def test_a_new_server_clears_up_when_even_the_guard_was_killed(
    state_dir: Path, wait_until: WaitUntil, find_processes: FindProcesses
) -> None:
    status = start_control(state_dir, with_prefect=False)
    guards = [p for p in find_processes(state_dir) if "comfyfarm.control.guard" in p.cmdline()]
    left_over = int((ControlPaths(state_dir).home / "postgres.pid").read_text().split()[0])

    for pid in (*(guard.pid for guard in guards), status.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not living(status))
    assert psutil.pid_exists(left_over)

    with use_control(state_dir, with_prefect=False) as again:
        assert again.healthy
        assert left_over not in [process.pid for process in find_processes(state_dir)]


def test_postgresql_is_started_again_when_it_dies(state_dir: Path, wait_until: WaitUntil) -> None:
    status = start_control(state_dir, with_prefect=False)
    pid_file = ControlPaths(state_dir).home / "postgres.pid"
    before = pid_file.read_text()

    os.kill(int(before.split()[0]), signal.SIGKILL)

    wait_until(lambda: pid_file.exists() and pid_file.read_text() not in {before, ""})
    wait_until(lambda: (now := control_status(state_dir)) is not None and now.healthy)
    assert living(status)


def _use(state_dir: Path) -> None:
    with use_control(state_dir, with_prefect=False):
        pass


def _start(state_dir: Path) -> None:
    start_control(state_dir, with_prefect=False)


@pytest.mark.parametrize("call", [_use, _start])
def test_what_cannot_start_says_why_and_what_to_set(state_dir: Path, call: Callable[[Path], None]) -> None:
    paths = ControlPaths(state_dir)
    paths.make()
    (paths.home / "postgres").write_text("in the way")

    with pytest.raises(ControlUnavailable, match=r"postgres.*PREFECT_API_URL.*--local"):
        call(state_dir)

    assert control_status(state_dir) is None


def test_a_second_server_in_one_directory_is_refused(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comfyfarm.control import server

    start_control(state_dir, with_prefect=False)
    monkeypatch.setattr(server, "_OTHER_ENDS_S", 0.2)

    with pytest.raises(ControlUnavailable, match="runs already"):
        server.run_control(state_dir, with_prefect=False)


def test_its_files_are_for_its_user_only(state_dir: Path) -> None:
    start_control(state_dir, with_prefect=False)
    paths = ControlPaths(state_dir)

    for path in (paths.record, paths.users_lock, paths.server_lock):
        assert path.stat().st_mode & 0o077 == 0, path
    assert paths.logs.stat().st_mode & 0o077 == 0
    assert paths.home.stat().st_mode & 0o066 == 0


def test_a_plain_user_has_his_own_server(
    state_dir: Path,
    as_plain_user: Sequence[str],
    start_python: StartPython,
    wait_until: WaitUntil,
    find_processes: FindProcesses,
) -> None:
    state_dir.chmod(0o700)
    user = start_python(["-c", _USER, str(state_dir)], prefix=as_plain_user)
    assert user.stdout is not None
    pid = int(user.stdout.readline())
    uids = {process.uids().real for process in find_processes(state_dir)}
    assert uids == {os.geteuid() or 65534}
    status = control_status(state_dir)
    assert status is not None
    assert (status.pid, status.healthy) == (pid, True)

    user.kill()

    wait_until(lambda: not living(status))
    assert find_processes(state_dir) == []
