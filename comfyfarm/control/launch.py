"""Starting, using and ending a control server from other processes."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from comfyfarm.clock import SystemClock, pause
from comfyfarm.control.children import end_process, log_tail, open_log
from comfyfarm.control.place import WAYS_OUT, check_installed
from comfyfarm.control.state import ControlPaths, ControlStatus, FileLock, control_status, read_record
from comfyfarm.errors import ControlUnavailable

_POLL_S = 0.1
_DEADLINE_S = 120.0
_STOP_S = 30.0

OnLine = Callable[[str], None]


def _silent(_line: str) -> None:
    """For callers that say nothing."""


@contextmanager
def use_control(
    state_dir: Path, *, with_prefect: bool = True, on_line: OnLine = _silent
) -> Iterator[ControlStatus]:
    """Have a control server for the length of a `with`; start one if none runs, or none with Prefect.

    What it starts ends with its last user. Blocks up to 120 s.

    Args:
        state_dir: the user's state directory.
        with_prefect: whether PostgreSQL alone is enough.
        on_line: takes lines for people while they wait.

    Raises:
        ControlUnavailable: it is not installed or cannot run here; with the reason and what to set.
    """
    paths = ControlPaths(state_dir)
    paths.make()
    users = FileLock(paths.users_lock)
    try:
        # Not free while the last server, unused, is on its way out.
        _wait_for(lambda: users.take(shared=True), paths)
        status = _ensure(paths, with_prefect=with_prefect, stay=False, on_line=on_line)
        yield status.model_copy(update={"users_fd": users.fd})
    finally:
        users.close()


def start_control(state_dir: Path, *, with_prefect: bool = True, on_line: OnLine = _silent) -> ControlStatus:
    """Start a control server that stays until it is stopped; one that runs already will stay.

    Raises:
        ControlUnavailable: it is not installed or cannot run here; with the reason and what to set.
    """
    paths = ControlPaths(state_dir)
    paths.make()
    return _ensure(paths, with_prefect=with_prefect, stay=True, on_line=on_line)


def stop_control(state_dir: Path) -> bool:
    """End the control server, whoever uses it; its data stays. False when none runs."""
    status = read_record(ControlPaths(state_dir))
    if status is None:
        return False
    end_process(status.pid, status.start, ask=signal.SIGTERM, grace_s=_STOP_S)
    return True


def _ensure(paths: ControlPaths, *, with_prefect: bool, stay: bool, on_line: OnLine) -> ControlStatus:
    lock = FileLock(paths.start_lock)
    try:
        _wait_for(lock.take, paths)
        return _Start(paths, with_prefect=with_prefect, stay=stay, on_line=on_line).wait()
    finally:
        lock.close()


def _wait_for(is_done: Callable[[], bool], paths: ControlPaths) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _DEADLINE_S
    while not is_done():
        if clock.monotonic() > deadline:
            raise ControlUnavailable(_failed(paths, f"did not answer within {_DEADLINE_S:.0f} s"))
        pause(_POLL_S)


class _Start:
    """One wait for a control server that does what is wished."""

    def __init__(self, paths: ControlPaths, *, with_prefect: bool, stay: bool, on_line: OnLine) -> None:
        self._paths = paths
        self._with_prefect = with_prefect
        self._stay = stay
        self._on_line = on_line
        self._pid: int | None = None
        self._found: ControlStatus | None = None

    def wait(self) -> ControlStatus:
        self._paths.failure.unlink(missing_ok=True)
        try:
            _wait_for(self._is_done, self._paths)
        except ControlUnavailable:
            if self._pid is not None:
                os.kill(self._pid, signal.SIGTERM)
            raise
        if self._found is None:
            raise ControlUnavailable(_failed(self._paths, "is not there"))
        return self._found

    def _is_done(self) -> bool:
        status = control_status(self._paths.home.parent)
        if status is None:
            self._spawn_once()
        elif status.ready and self._fits(status):
            self._found = status
            return status.healthy
        return False

    def _fits(self, status: ControlStatus) -> bool:
        fits = True
        if self._paths.failure.exists():
            raise ControlUnavailable(_failed(self._paths, "failed"))
        if self._with_prefect and status.api_url is None:
            self._paths.want_prefect.touch()
            fits = False
        if self._stay and status.until_unused:
            self._paths.want_stay.touch()
            fits = False
        return fits

    def _spawn_once(self) -> None:
        if self._pid is None:
            check_installed()
            self._on_line("starting the control server (some seconds)")
            self._pid = _spawn(self._paths, with_prefect=self._with_prefect, stay=self._stay)
        elif os.waitpid(self._pid, os.WNOHANG) != (0, 0):
            self._pid = None
            raise ControlUnavailable(_failed(self._paths, "ended at once"))


def _spawn(paths: ControlPaths, *, with_prefect: bool, stay: bool) -> int:
    # -P: a file of the user's named like a module of Python's must not be taken for it.
    command = [sys.executable, "-P", "-m", "comfyfarm.control", "--dir", str(paths.home.parent)]
    command += [] if with_prefect else ["--no-prefect"]
    command += [] if stay else ["--until-unused"]
    with open_log(paths.log) as log, Path(os.devnull).open("rb") as nothing:
        # Not subprocess: it outlives us, and nobody here waits for it. A session of its own keeps
        # a terminal's Ctrl-C away.
        return os.posix_spawn(
            sys.executable,
            command,
            os.environ,
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
            ],
        )


def _failed(paths: ControlPaths, what: str) -> str:
    if paths.failure.exists():
        return paths.failure.read_text(encoding="utf-8")
    return f"the control server {what}; {WAYS_OUT}. The end of {paths.log}:\n{log_tail(paths.log)}"
