"""Temporary files that nobody sees, and that are known to be left over when their process is dead.

Each is held by a lock of the kernel (`flock`) for as long as it is being written. A process that dies,
however it dies, lets go of it; so an unlocked temporary is rubbish, whichever container or pid it came from.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
from pathlib import Path

from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.held_folder import NO_LOCKS

_log = logging.getLogger(__name__)

_TRIES = 20
_OURS = re.compile(r"\d+-\w+")
"""What follows the prefix in the names we give: other files may lie beside them."""


class TemporaryFile:
    """An open, locked file of our own under a name that no other process has."""

    def __init__(self, path: Path, fd: int, *, levels: int, disk: Disk = SYSTEM_DISK) -> None:
        """`levels`: how many folders above it are ours, and removed when they are empty."""
        self.path = path
        self.fd = fd
        self._disk = disk
        self._levels = levels
        self._is_published = False

    def publish(self, final: Path) -> None:
        """Make the bytes durable, then visible under `final`, replacing what is there.

        Raises:
            OSError: the disk is full, read-only, or broken.
        """
        self._disk.sync(self.fd, self.path)
        is_beside = final.parent == self.path.parent
        if not is_beside:
            self._disk.make_folder(final.parent)
        self._disk.rename(self.path, final)
        self._is_published = True
        self._levels *= not is_beside
        self._disk.sync_folder(final.parent)
        self.discard()

    def discard(self) -> None:
        """Let go of the file, and remove it unless it was published. Safe to repeat.

        Raises:
            OSError: it cannot be removed; it is let go of all the same, for a sweep to find.
        """
        if self.fd < 0:
            return
        try:
            if not self._is_published:
                self._disk.unlink(self.path)
        finally:
            os.close(self.fd)
            self.fd = -1
        # Leave no empty folders behind; one that another process uses is not empty.
        with contextlib.suppress(OSError):
            for folder in list(self.path.parents)[: self._levels]:
                self._disk.remove_folder(folder)


def open_temporary(
    folder: Path, *, prefix: str = "", levels: int = 2, disk: Disk = SYSTEM_DISK
) -> TemporaryFile:
    """A new temporary in `folder`, after removing what dead processes left there.

    Args:
        folder: where; made if need be.
        prefix: of its name, where other files lie beside it.
        levels: how many folders above the file are ours: removed when they are empty.
        disk: what it lies on.

    Raises:
        OSError: the folder cannot be made or written.
    """
    sweep(folder, prefix=prefix, disk=disk)
    for _ in range(_TRIES):
        path = folder / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
        # Who finds the folder empty removes it, perhaps just now.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            fd = _create(path, disk)
            try:
                if _hold(fd) and os.fstat(fd).st_nlink:
                    return TemporaryFile(path, fd, levels=levels, disk=disk)
            except OSError:
                os.close(fd)
                raise
            # A sweep came between creation and lock, and took the file for a dead one.
            os.close(fd)
    raise OSError(errno.EBUSY, "cannot keep a temporary file", str(folder))


def _create(path: Path, disk: Disk) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return disk.open_file(path, flags)
    except FileNotFoundError:
        disk.make_folder(path.parent)
        return disk.open_file(path, flags)


def sweep(folder: Path, *, prefix: str = "", disk: Disk = SYSTEM_DISK) -> int:
    """Remove temporaries of dead processes in `folder`; returns how many. Other files are left alone."""
    removed = 0
    for path in _files(folder, prefix):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                disk.unlink(path)
                removed += 1
            finally:
                os.close(fd)
    if removed:
        _log.info("removed %d temporary files of dead processes in %s", removed, folder)
    return removed


def _files(folder: Path, prefix: str) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if _is_ours(path.name, prefix) and path.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_ours(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and _OURS.fullmatch(name, len(prefix)) is not None


def _hold(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        # Some network file systems have no locks: then nothing is ever swept there, and all else works.
        if exc.errno not in NO_LOCKS:
            raise
    return True
