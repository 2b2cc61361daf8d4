"""Folders of transfers that were broken off: how old they are, and how one is given up."""

import contextlib
import logging
from pathlib import Path

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import LOCK_NAME, HeldFolder, try_folder

_log = logging.getLogger(__name__)

DATA_NAME = "data"
JOURNAL_NAME = "journal"


def last_use_s(folder: Path) -> float:
    """When something in it was last written, in Unix seconds; 0 when it is gone."""
    times = [0.0]
    for path in (folder, *(folder / name for name in (DATA_NAME, JOURNAL_NAME, LOCK_NAME))):
        with contextlib.suppress(OSError):
            times.append(path.lstat().st_mtime)
    return max(times)


def clear_partial(held: HeldFolder, *, disk: Disk) -> None:
    """Remove a folder that we hold, with all that is in it. It is let go of, whatever happens.

    Raises:
        OSError: the disk is read-only or broken.
    """
    try:
        # A journal without data is known to be void; data without journal would only waste its room.
        disk.unlink(held.path / DATA_NAME)
        disk.unlink(held.path / JOURNAL_NAME)
        held.remove()
    finally:
        held.release()


def remove_partial(folder: Path, *, before_s: float, disk: Disk) -> bool:
    """Remove the folder if nobody holds it and nobody wrote in it since; one without data goes at once.

    Raises:
        OSError: the disk is read-only or broken.
    """
    if not (folder / LOCK_NAME).exists() and not (folder / DATA_NAME).exists():
        with contextlib.suppress(OSError):
            # One that somebody begins to work in just now is not empty.
            disk.remove_folder(folder)
        return False
    if not _is_given_up(folder, before_s):
        return False
    held = try_folder(folder, disk=disk)
    if held is None:
        return False
    if not _is_given_up(folder, before_s):
        # Somebody went on with it just now.
        held.release()
        return False
    clear_partial(held, disk=disk)
    _log.info("gave up a transfer that nobody went on with: %s", folder)
    return True


def _is_given_up(folder: Path, before_s: float) -> bool:
    # Without data there is nothing to resume: its process died when the file had just been moved away.
    return not (folder / DATA_NAME).exists() or last_use_s(folder) < before_s
