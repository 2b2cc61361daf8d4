"""Files that turned out to be wrong, out of sight: the last few, each with the reason beside it."""

import contextlib
import logging
import os
from pathlib import Path

from comfyfarm.cache.disk import Disk

_log = logging.getLogger(__name__)

KEPT = 3
REASON_SUFFIX = ".reason"


def quarantine_file(path: Path, folder: Path, *, reason: str, disk: Disk) -> Path | None:
    """Move a file into the folder, under its own name; None when it is gone already.

    Raises:
        OSError: it cannot be moved.
    """
    taken = folder / path.name
    disk.make_folder(folder)
    try:
        disk.rename(path, taken)
    except FileNotFoundError:
        return None
    try:
        _write(taken.with_name(taken.name + REASON_SUFFIX), reason, disk)
        _drop_oldest(folder, disk)
    except OSError as exc:
        # A disk that is full must not keep the wrong bytes in sight.
        _log.warning("%s: %s", folder, exc)
    return taken


def _write(path: Path, text: str, disk: Disk) -> None:
    fd = disk.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        disk.write_at(fd, f"{text}\n".encode(), 0, path)
    finally:
        os.close(fd)


def _drop_oldest(folder: Path, disk: Disk) -> None:
    wrong = [path for path in folder.iterdir() if path.suffix != REASON_SUFFIX]
    for path in sorted(wrong, key=_moved_s)[:-KEPT]:
        disk.unlink(path)
        disk.unlink(path.with_name(path.name + REASON_SUFFIX))


def _moved_s(path: Path) -> float:
    # A rename changes the inode, not the time of its last write.
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ctime
    return 0.0
