"""Temporary files that nobody sees, and that are known to be left over when their process is dead.

Each is held by a lock of the kernel (`flock`) for as long as it is being written. A process that dies,
however it dies, lets go of it; so an unlocked temporary is rubbish, whichever container or pid it came from.
"""

import contextlib
import errno
import fcntl
import logging
import os
import secrets
from pathlib import Path

_log = logging.getLogger(__name__)

_TRIES = 20


class TemporaryFile:
    """An open, locked file of our own under a name that no other process has."""

    def __init__(self, path: Path, fd: int, *, levels: int) -> None:
        """`levels`: how many folders above it are ours, and removed when they are empty."""
        self.path = path
        self.fd = fd
        self._levels = levels
        self._is_published = False

    def publish(self, final: Path, *, mode: int | None = None) -> None:
        """Make the bytes durable, then visible under `final`, replacing what is there.

        Raises:
            OSError: the disk is full, read-only, or broken.
        """
        if mode is not None:
            os.fchmod(self.fd, mode)
        os.fsync(self.fd)
        is_beside = final.parent == self.path.parent
        if not is_beside:
            final.parent.mkdir(parents=True, exist_ok=True)
        self.path.rename(final)
        self._is_published = True
        self._levels *= not is_beside
        sync_folder(final.parent)
        self.discard()

    def discard(self) -> None:
        """Let go of the file, and remove it unless it was published. Safe to repeat."""
        if self.fd < 0:
            return
        if not self._is_published:
            self.path.unlink(missing_ok=True)
        os.close(self.fd)
        self.fd = -1
        # Leave no empty folders behind; one that another process uses is not empty.
        with contextlib.suppress(OSError):
            for folder in list(self.path.parents)[: self._levels]:
                folder.rmdir()


def open_temporary(folder: Path, *, prefix: str = "", levels: int = 2) -> TemporaryFile:
    """A new temporary in `folder`, after removing what dead processes left there.

    Args:
        folder: where; made if need be.
        prefix: of its name, where other files lie beside it.
        levels: how many folders above the file are ours: removed when they are empty.

    Raises:
        OSError: the folder cannot be made or written.
    """
    sweep(folder, prefix=prefix)
    for _ in range(_TRIES):
        path = folder / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}"
        # Who finds the folder empty removes it, perhaps just now.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            fd = _create(path)
            try:
                if _hold(fd) and os.fstat(fd).st_nlink:
                    return TemporaryFile(path, fd, levels=levels)
            except OSError:
                os.close(fd)
                raise
            # A sweep came between creation and lock, and took the file for a dead one.
            os.close(fd)
    raise OSError(errno.EBUSY, "cannot keep a temporary file", str(folder))


def _create(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def sweep(folder: Path, *, prefix: str = "") -> int:
    """Remove temporaries of dead processes in `folder`; returns how many."""
    removed = 0
    for path in _files(folder, prefix):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
            finally:
                os.close(fd)
    if removed:
        _log.info("removed %d temporary files of dead processes in %s", removed, folder)
    return removed


def sync_folder(folder: Path) -> None:
    """Make renames in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _files(folder: Path, prefix: str) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.name.startswith(prefix) and path.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _hold(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        # Some network file systems have no locks: then nothing is ever swept there, and all else works.
        if exc.errno not in {errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL}:
            raise
    return True
