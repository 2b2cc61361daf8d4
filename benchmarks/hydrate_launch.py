"""Runs one command and says what it took: `python -I -S hydrate_launch.py`, JSON on stdin and stdout.

A script by itself, and small: a child's peak memory begins with that of the process that starts it.
What lies below `sync` is made durable inside the timed span, for programs that do not do so themselves.
"""

import json
import os
import resource
import signal
import sys
import time


def main() -> None:
    """Prints JSON: code, wall_s, cpu_s (user and system, of all processes), peak_kib."""
    given = json.load(sys.stdin)
    log = os.open(given["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    actions = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    command, own = given["command"], _cpu_s(resource.getrusage(resource.RUSAGE_SELF))
    begun = time.monotonic()
    pid = os.posix_spawn(command[0], command, given["environment"], file_actions=actions)
    _ends_with_us(pid)
    _, status, used = os.wait4(pid, 0)
    if given["sync"]:
        _sync(given["sync"])
    wall_s = time.monotonic() - begun
    cpu_s = _cpu_s(used) + _cpu_s(resource.getrusage(resource.RUSAGE_SELF)) - own
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps({"code": code, "wall_s": wall_s, "cpu_s": cpu_s, "peak_kib": used.ru_maxrss}))


def _ends_with_us(pid: int) -> None:
    def end(number: int, _frame: object) -> None:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _sync(folder: str) -> None:
    for parent, _folders, names in os.walk(folder):
        for name in names:
            fd = os.open(f"{parent}/{name}", os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def _cpu_s(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
