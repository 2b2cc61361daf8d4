"""What lies where a blob goes, and is none: a link, a named pipe, a folder; or a file where a folder goes."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.errors import TransferError

_REASON = "no regular file"


def open_regular(path: Path) -> int:
    """Open a file for reading; never waits, as opening a named pipe would.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, _REASON, str(path))
    return fd


def is_strange(path: Path) -> bool:
    """Whether something lies there that is no regular file."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def strange_blobs(blobs: BlobStore) -> list[str]:
    """SHA-256 of blobs in whose place something else lies."""
    paths = (blobs.root / "sha256").glob("??/" + "?" * 64)
    return sorted(path.name for path in paths if is_strange(path))


def take_away_strange(blobs: BlobStore, shas: Iterable[str], *, disk: Disk) -> dict[str, Path]:
    """Have nothing lie where these blobs go that is none, with the cache locked; where it lies now.

    A named pipe and an empty folder hold nothing, and are removed; the rest goes to the quarantine.

    Raises:
        OSError: the cache cannot be written.
    """
    taken = {}
    for sha in shas:
        path = blobs.path(sha)
        if is_strange(path) and not _is_removed(path, disk):
            there = blobs.root / "quarantine" / sha
            if path.is_dir() and not path.is_symlink() and (there.is_symlink() or not there.is_dir()):
                disk.unlink(there)  # no folder can take the name of a file
            now = blobs.quarantine(sha, reason=_REASON)
            if now is not None:
                taken[sha] = now
    return taken


def refuse_files_for_folders(blobs: BlobStore, shas: Sequence[str]) -> None:
    """Name what lies where the folders of these blobs go.

    Raises:
        TransferError: there is such a thing.
    """
    top = blobs.root / "sha256"
    for folder in dict.fromkeys((top, *(blobs.path(sha).parent for sha in shas))):
        if os.path.lexists(folder) and not folder.is_dir():
            raise TransferError(f"{folder}: is no folder, and one of the cache goes there; move it away")


def _is_removed(path: Path, disk: Disk) -> bool:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return False
    if stat.S_ISDIR(mode):
        with contextlib.suppress(OSError):
            disk.remove_folder(path)
            return True
        return False
    disk.unlink(path)
    return True
