"""Who owns a claim: a process, told apart by host, boot, process space, pid and start time.

Light on purpose: the control server uses it too.
"""

import os
import secrets
import socket
from pathlib import Path

import psutil

_UNKNOWN = "-"


def this_owner() -> str:
    """A new owner name of this process: `host/boot id/pid/start time/suffix`.

    Two calls differ, so that two shards in one process do not hold each other's claims.
    """
    pid = os.getpid()
    return f"{_host()}/{_boot_id()}/{pid}/{process_start(pid)}/{_pid_space()}.{secrets.token_hex(4)}"


def is_gone(owner: str) -> bool:
    """Whether `owner` is surely dead: it ran on this host, and its process or that boot is over.

    False when in doubt (another host, another container, an unknown form): its lease decides then.
    """
    parts = owner.split("/")
    if len(parts) != 5 or parts[0] != _host() or not parts[2].isdigit():
        return False
    _host_name, boot, pid, start, tail = parts
    if boot != _boot_id():
        return True
    if tail.partition(".")[0] != _pid_space():
        return False
    return process_start(int(pid)) != start


def process_start(pid: int) -> str:
    """When the process began, as a text that never fits a later process of that pid; `-` if none lives.

    On Linux it is the kernel's own tick count: a start time in wall-clock seconds moves when the
    clock is set. A zombie lives no more.

    Source: proc(5), `/proc/[pid]/stat` fields 3 (state) and 22 (starttime).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _portable_start(pid)
    fields = stat.rpartition(")")[2].split()
    return _UNKNOWN if fields[0] in "ZX" else fields[19]


def _portable_start(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return _UNKNOWN
    try:
        process = psutil.Process(pid)
        dead = process.status() == psutil.STATUS_ZOMBIE
        return _UNKNOWN if dead else str(int(process.create_time()))
    except psutil.Error:
        return _UNKNOWN


def is_alive(pid: int, start: str) -> bool:
    """Whether the process `pid` that began at `start` (see `process_start`) still runs."""
    return start != _UNKNOWN and process_start(pid) == start


def _host() -> str:
    return socket.gethostname().replace("/", "_") or "localhost"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _pid_space() -> str:
    """The pid namespace: containers of one host may share its name, not its process numbers."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "0"
