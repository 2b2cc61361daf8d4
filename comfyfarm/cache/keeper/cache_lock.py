"""One lock of the kernel for a cache: who has it, and nobody else, grants leases, links and evicts."""

import contextlib
import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import NO_LOCKS

_log = logging.getLogger(__name__)

LEASES = ".leases"
TOLD_AFTER_S = 5.0
READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""What a disk answers that we may only read."""


@contextlib.contextmanager
def cache_lock(root: Path, *, disk: Disk, name: str = "door") -> Iterator[None]:
    """Wait for the lock, and have it while it is open. The kernel takes it from a process that dies.

    Raises:
        OSError: the cache cannot be written.
    """
    fd = _open(root / LEASES / name, disk)
    try:
        _lock_in_the_end(fd, root / LEASES / name)
        yield
    finally:
        unlock(fd)


def _lock_in_the_end(fd: int, path: Path) -> None:
    """Wait for the lock, and say once whom for when that takes long."""
    try:
        return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as exc:
        if exc.errno not in NO_LOCKS:
            raise
        return None
    telling = threading.Timer(TOLD_AFTER_S, _tell, [fd, path])
    telling.daemon = True
    telling.start()
    try:
        lock(fd)
    finally:
        telling.cancel()
        # It must not look at a file of another that has this number by then.
        telling.join()
    return None


def _tell(fd: int, path: Path) -> None:
    pid = _holder(os.fstat(fd).st_ino)
    _log.warning("%s: waiting for another process that works here%s", path, f" (pid {pid})" if pid else "")


def _holder(inode: int) -> int | None:
    """The process that has an exclusive lock, where this system tells.

    Source: `man 5 proc_locks`.
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for words in map(str.split, lines):
        if words[1:2] == ["FLOCK"] and words[3] == "WRITE" and words[5].rpartition(":")[2] == str(inode):
            return int(words[4]) if int(words[4]) > 0 else None
    return None


def lock(fd: int, *, shared: bool = False) -> None:
    """Wait for the lock on an open file; without effect where a file system has none."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    except OSError as exc:
        if exc.errno not in NO_LOCKS:
            raise


def unlock(fd: int) -> None:
    """Let go, and close. A child that was forked meanwhile has the open file too, but no lock any more."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def is_locked(fd: int, *, exclusively: bool = False) -> bool:
    """Whether another open file of the same inode is locked.

    Looks for exclusive locks only, and leaves a shared one on this file; `exclusively` looks for shared
    ones too, and leaves an exclusive one.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as exc:
        # Nobody can say who is alive there: then everybody is.
        return exc.errno in NO_LOCKS
    return False


def _open(path: Path, disk: Disk) -> int:
    flags = os.O_RDWR | os.O_CREAT
    try:
        return disk.open_file(path, flags)
    except FileNotFoundError:
        disk.make_folder(path.parent)
        return disk.open_file(path, flags)


def unwritable(root: Path, error: OSError) -> str:
    """What is wrong with a cache, in words."""
    return f"{root}: the cache cannot be written: {error.strerror or error}"
