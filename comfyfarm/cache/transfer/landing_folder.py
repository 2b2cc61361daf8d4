"""What a landing has on disk: `.partial/<sha>/` with `data`, `journal` and `lock`."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import HeldFolder, hold_folder, is_regular
from comfyfarm.cache.partial import DATA_NAME, JOURNAL_NAME, clear_partial
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, ChunkMap
from comfyfarm.cache.transfer.direct import DirectFile, open_direct
from comfyfarm.cache.transfer.journal import Journal, open_journal

_log = logging.getLogger(__name__)


class LandingFolder(NamedTuple):
    """The folder, held, with its open files."""

    held: HeldFolder
    file: DirectFile
    journal: Journal
    chunks: ChunkMap
    """What is here from an earlier life."""
    disk: Disk

    def leave(self) -> None:
        """Keep what is here for a next try.

        Raises:
            OSError: the disk is read-only or broken.
        """
        # The room that was taken for what is not here serves others meanwhile.
        ends = [each.stop for each in self.chunks.ranges(here=True)]
        if ends and ends[-1] < self.chunks.size:
            self.file.truncate(ends[-1])

    def remove(self) -> None:
        """Remove it with all that is in it. It is let go of, whatever happens.

        Raises:
            OSError: the disk is read-only or broken.
        """
        clear_partial(self.held, disk=self.disk)

    def let_go(self) -> None:
        """Close everything, the lock last. Safe to repeat."""
        self.file.close()
        self.journal.close()
        self.held.release()


def open_folder(path: Path, size: int, *, disk: Disk, stop: Callable[[], None]) -> LandingFolder:
    """Wait until the folder is ours, read its journal, and take the room for the file.

    Raises:
        OSError: no room, or a disk that is read-only or broken. What an earlier life left stays.
        Exception: whatever `stop` raises; it is called at least every 0.1 s while another holds the folder.
    """
    held = hold_folder(path, disk=disk, stop=stop)
    data = held.path / DATA_NAME
    is_data_there = is_regular(data)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(held.release)
        # The journal first: one whose data is gone must be empty before there is data again.
        journal, chunks = open_journal(held.path / JOURNAL_NAME, size, disk=disk, is_data_there=is_data_there)
        if not chunks.here_bytes():
            on_failure.callback(_remove_quietly, held, disk)
        on_failure.callback(journal.close)
        file = open_direct(data, disk=disk)
        on_failure.callback(file.close)
        _forget_what_is_cut_off(file, journal, chunks)
        folder = LandingFolder(held, file, journal, chunks, disk)
        # On a full disk the room was taken in part, perhaps all that was left.
        on_failure.callback(_leave_quietly, folder)
        file.reserve(size)
        on_failure.pop_all()
        return folder
    raise AssertionError  # pragma: no cover - an ExitStack of ours swallows nothing


def _forget_what_is_cut_off(file: DirectFile, journal: Journal, chunks: ChunkMap) -> None:
    length = file.length()
    if length >= chunks.size:
        return
    before = chunks.here_bytes()
    cut_off = range(length // CHUNK_BYTES * CHUNK_BYTES, chunks.size)
    chunks.mark(cut_off, here=False)
    if chunks.here_bytes() < before:
        journal.append("lost", [cut_off])


def _leave_quietly(folder: LandingFolder) -> None:
    try:
        folder.leave()
    except OSError as exc:
        _log.warning("%s: its room is not given back: %s", folder.held.path, exc)


def _remove_quietly(held: HeldFolder, disk: Disk) -> None:
    try:
        clear_partial(held, disk=disk)
    except OSError as exc:
        _log.warning("%s: not cleared away: %s", held.path, exc)
