"""A folder that one holder at a time works in, over all threads and processes: by a lock of the kernel.

Whoever dies lets go of it. Only its holder removes the folder; one who waited meanwhile notices, and makes it
anew: what counts is that the locked file still lies under its name.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.clock import pause

LOCK_NAME = "lock"
POLL_S = 0.05
NO_LOCKS = frozenset({errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL})
"""What file systems say that have no locks."""
ITSELF = os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open what lies under a name, not what it leads to, and without waiting for a pipe's other end."""


class HeldFolder:
    """A folder that is ours alone until `release` or `remove`."""

    def __init__(self, path: Path, fd: int, *, disk: Disk, is_private: bool = False) -> None:
        self.path = path
        self.is_private = is_private
        """Nobody else will ever look for it: the file system has no locks, and this name is ours alone."""
        self._fd = fd
        self._disk = disk

    def release(self) -> None:
        """Let go; what lies in the folder stays. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Remove the folder, whose other files are gone already, and that above it when it is empty.

        Raises:
            OSError: the lock cannot be removed. It is let go of all the same.
        """
        try:
            self._disk.unlink(self.path / LOCK_NAME)
            # From here on it may be another's; theirs is not empty.
            with contextlib.suppress(OSError):
                self._disk.remove_folder(self.path)
                self._disk.remove_folder(self.path.parent)
        finally:
            self.release()


def hold_folder(path: Path, *, disk: Disk = SYSTEM_DISK, stop: Callable[[], None]) -> HeldFolder:
    """Wait until the folder is ours; made if need be.

    Args:
        path: the folder. On a file system without locks it is another beside it, that nobody knows.
        disk: what it is made on.
        stop: called at least every 0.1 s while another holds it; raises to give up.

    Raises:
        OSError: it cannot be made or locked.
    """
    while True:
        try:
            held = try_folder(path, disk=disk)
        except OSError as exc:
            if exc.errno not in NO_LOCKS:
                raise
            return _private(path, disk)
        if held is not None:
            return held
        stop()
        pause(POLL_S)


def try_folder(path: Path, *, disk: Disk = SYSTEM_DISK) -> HeldFolder | None:
    """The folder, held; None when another holds it, or has just removed it.

    Raises:
        OSError: it cannot be made or locked.
    """
    disk.make_folder(path)
    try:
        fd = open_own_file(path / LOCK_NAME, os.O_RDWR | os.O_CREAT, disk=disk)
    except FileNotFoundError:
        return None
    except OSError:
        with contextlib.suppress(OSError):
            disk.remove_folder(path)
        raise
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _lies_there(fd, path / LOCK_NAME):
            return HeldFolder(path, fd, disk=disk)
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def is_held(path: Path) -> bool:
    """Whether somebody works in this folder now."""
    try:
        fd = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | ITSELF)
    except OSError:
        return False
    try:
        # Shared: two who ask do not take each other for holders.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def open_own_file(path: Path, flags: int, *, disk: Disk) -> int:
    """Open a regular file of such a folder; a link, pipe or the like that lies there instead is removed.

    What a link leads to is another's, and stays untouched.

    Raises:
        OSError: it cannot be opened, or there is a folder in its place.
    """
    if not is_regular(path):
        _clear_way(path, disk)
    fd = disk.open_file(path, flags | ITSELF)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EEXIST, "is no regular file", str(path))


def is_regular(path: Path) -> bool:
    """Whether there is a regular file under this very name, not by a link."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None


def _clear_way(path: Path, disk: Disk) -> None:
    if (mode := _mode(path)) is None:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder lies where a file of ours belongs", str(path))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Else two who see the same link may remove what the other has put in its place.
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not is_regular(path):
            disk.unlink(path)
    finally:
        os.close(folder)


def _private(path: Path, disk: Disk) -> HeldFolder:
    with contextlib.suppress(OSError):
        disk.unlink(path / LOCK_NAME)
        disk.remove_folder(path)
    own = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    disk.make_folder(own)
    fd = disk.open_file(own / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    return HeldFolder(own, fd, disk=disk, is_private=True)


def _lies_there(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False
