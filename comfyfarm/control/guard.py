"""Runs a command in a process group of its own, and ends that group when the parent is gone.

`python -m comfyfarm.control.guard [--user UID:GID] [--signal INT|TERM] [--pid-file FILE] -- CMD…`
The parent holds the other end of standard input: the kernel closes it even when the parent is killed.
"""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from comfyfarm.ledger.owner import process_start

_ASK_S = 5.0
"""After the first signal, in seconds, until it is asked again (a fast shutdown takes well under one)."""
_KILL_S = 7.5
"""After the first signal, in seconds, until it is killed: with its parent's death all is over in 10 s."""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code is the command's, 128 + signal number if one ended it."""
    options, command = _parsed(arguments)
    wake = _signals_as_bytes()
    user, group = _identity(options)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
    )
    if "--pid-file" in options:
        name = f"{child.pid} {process_start(child.pid)}"
        Path(options["--pid-file"]).write_text(name, encoding="ascii")
    if not _has_ended_by_itself(child, wake):
        _end_group(child, signal.Signals[f"SIG{options.get('--signal', 'INT')}"])
    code = child.wait()
    return code if code >= 0 else 128 - code


def _parsed(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    split = list(arguments).index("--")
    pairs = arguments[:split]
    return dict(zip(pairs[::2], pairs[1::2], strict=True)), list(arguments[split + 1 :])


def _signals_as_bytes() -> int:
    """A descriptor on which each signal is a byte, so that one wait covers it and standard input."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return read


def _identity(options: dict[str, str]) -> tuple[int | None, int | None]:
    if "--user" not in options:
        return None, None
    user, _, group = options["--user"].partition(":")
    return int(user), int(group)


def _has_ended_by_itself(child: "subprocess.Popen[bytes]", wake: int) -> bool:
    """Wait until the child ends (true), or until the parent is gone or asks to stop (false)."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(0, selectors.EVENT_READ)
        waiting.register(wake, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                received = os.read(key.fd, 4096)
                if key.fd == 0 and not received:
                    return False
                if key.fd == wake and any(number != signal.SIGCHLD for number in received):
                    return False
            if child.poll() is not None:
                return True


def _end_group(child: "subprocess.Popen[bytes]", first: signal.Signals) -> None:
    for number, wait_s in ((first, _ASK_S), (signal.SIGTERM, _KILL_S - _ASK_S)):
        _signal_group(child.pid, number)
        try:
            child.wait(timeout=wait_s)
            break
        except subprocess.TimeoutExpired:
            continue
    # Also what the command left behind in its group.
    _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return  # Nobody is left; macOS calls a group of zombies forbidden.


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
