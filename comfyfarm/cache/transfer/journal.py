"""What of a file that is on its way is safely on disk: one line a step, appended, never trusted further.

Line 1 names version and size; each other line is `{"here": [[start, end], …]}` or `{"lost": …}`, offsets in
bytes, `end` not included. A line counts when it is whole. There is no hash in it: the SHA-256 of the whole
file decides, and a wrong journal costs time only.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import open_own_file
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, ChunkMap

_VERSION = 1


class Reading(NamedTuple):
    """What a journal says."""

    here: ChunkMap
    valid_bytes: int
    """Of its text; what follows is torn. 0: not a journal of this file."""


def format_header(size: int) -> bytes:
    """The first line."""
    return _line({"v": _VERSION, "size": size})


def format_ranges(word: str, ranges: Iterable[range]) -> bytes:
    """A line of ranges that are `here` or `lost`."""
    return _line({word: [[each.start, each.stop] for each in ranges]})


def parse(text: bytes, size: int) -> Reading:
    """What the journal of a file of this size says, as far as it can be read."""
    here = ChunkMap(size)
    header = format_header(size)
    if not text.startswith(header):
        return Reading(here, 0)
    valid = len(header)
    for line in text[valid:].splitlines(keepends=True):
        if not _apply(line, here):
            break
        valid += len(line)
    return Reading(here, valid)


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _apply(line: bytes, here: ChunkMap) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    ((word, ranges),) = entry.items()
    if word not in {"here", "lost"} or not isinstance(ranges, list):
        return False
    if not all(_is_range(each, here.size) for each in ranges):
        return False
    for start, end in ranges:
        here.mark(range(start, end), here=word == "here")
    return True


def _is_range(value: Any, size: int) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not all(type(each) is int for each in value):
        return False
    start, end = value
    is_end = end == size or end % CHUNK_BYTES == 0
    return bool(0 <= start < end <= size and start % CHUNK_BYTES == 0 and is_end)


class Journal:
    """The journal's file, open for appending. Not thread-safe."""

    def __init__(self, path: Path, fd: int, *, at: int, disk: Disk) -> None:
        self._path = path
        self._fd = fd
        self._at = at
        self._disk = disk

    def append(self, word: str, ranges: Iterable[range]) -> None:
        """Add a line, durably.

        Raises:
            OSError: it cannot be written.
        """
        line = format_ranges(word, ranges)
        self._disk.write_at(self._fd, line, self._at, self._path)
        self._disk.sync_data(self._fd, self._path)
        self._at += len(line)

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_journal(path: Path, size: int, *, disk: Disk, is_data_there: bool) -> tuple[Journal, ChunkMap]:
    """The journal of a file of this size, and what it says is here.

    A torn end is cut off. One of another file, or one whose data is gone, starts over: before any data comes.

    Raises:
        OSError: it cannot be read or written.
    """
    fd = open_own_file(path, os.O_RDWR | os.O_CREAT, disk=disk)
    try:
        text = _read(fd)
        reading = parse(text, size) if is_data_there else Reading(ChunkMap(size), 0)
        at = reading.valid_bytes
        if at < len(text):
            disk.truncate(fd, at, path)
        if not at:
            header = format_header(size)
            disk.write_at(fd, header, 0, path)
            at = len(header)
        if reading.valid_bytes < len(text):
            disk.sync_data(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return Journal(path, fd, at=at, disk=disk), reading.here


def _read(fd: int) -> bytes:
    with open(fd, "rb", closefd=False) as file:
        return file.read()
