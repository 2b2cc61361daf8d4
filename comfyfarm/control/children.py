"""Child processes under the guard, and what a crash left of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from comfyfarm.clock import pause
from comfyfarm.control.identity import Identity
from comfyfarm.ledger.owner import is_alive

_STOP_S = 12.0
"""The guard kills after 7.5 s."""
_POLL_S = 0.02
_TAIL_BYTES = 4000
_TAIL_LINES = 15
_LOG_LIMIT_BYTES = 10_000_000


class Child:
    """A command that runs until it is stopped, and that cannot outlive this process by 10 s."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        cwd: Path,
        log: Path,
        pid_file: Path,
        identity: Identity | None = None,
    ) -> None:
        self.log = log
        self._pid_file = pid_file
        options = ["--pid-file", str(pid_file)]
        if identity is not None:
            options += ["--user", f"{identity.uid}:{identity.gid}"]
        with open_log(log) as output:
            self._guard = subprocess.Popen(
                [sys.executable, "-P", "-m", "comfyfarm.control.guard", *options, "--", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=dict(environ),
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Whether the command is over."""
        return self._guard.poll() is not None

    def stop(self) -> None:
        """End the command, kindly at first, and wait for it."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        end_left_over(self._pid_file)


def end_left_over(pid_file: Path) -> None:
    """End the process group that a pid file names, if it is still that process; forget the file."""
    try:
        pid, start = pid_file.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return
    if is_alive(int(pid), start):
        end_process(int(pid), start, group=True)
    pid_file.unlink(missing_ok=True)


def end_process(
    pid: int, start: str, *, group: bool = False, ask: int = signal.SIGINT, grace_s: float = 5.0
) -> None:
    """End a process that is no child of ours, known by pid and start time, and wait until it is gone."""
    send = os.killpg if group else os.kill
    for number, wait_s in ((ask, grace_s), (signal.SIGKILL, 5.0)):
        if not is_alive(pid, start):
            return
        try:
            send(pid, number)
        except ProcessLookupError:
            return
        for _ in range(int(wait_s / _POLL_S)):
            if not is_alive(pid, start):
                return
            pause(_POLL_S)


def open_log(path: Path) -> BinaryIO:
    """The log to append to; a large one becomes `<name>.1` first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
        path.replace(path.with_name(path.name + ".1"))
    return path.open("ab")


def log_tail(path: Path) -> str:
    """The last lines of a log, for an error message."""
    try:
        data = path.read_bytes()[-_TAIL_BYTES:]
    except OSError:
        return ""
    return "\n".join(data.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:])
