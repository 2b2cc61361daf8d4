"""A file's SHA-256 as a whole and of each of its parts, in one reading."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.errors import InputError

_READ_BYTES = 4 << 20


class Hashes(NamedTuple):
    """What a file's bytes are."""

    sha256: str
    size: int
    """Bytes."""
    parts: tuple[str, ...]
    """SHA-256 of each 16 MiB."""


class Hashing:
    """Takes a file's bytes in order."""

    def __init__(self) -> None:
        self._whole, self._part = hashlib.sha256(), hashlib.sha256()
        self._parts: list[str] = []
        self._size = 0

    def take(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        self._whole.update(data)
        view = memoryview(data)
        while view:
            piece = view[: PART_BYTES - self._size % PART_BYTES]
            self._part.update(piece)
            self._size += len(piece)
            view = view[len(piece) :]
            if self._size % PART_BYTES == 0:
                self._parts.append(self._part.hexdigest())
                self._part = hashlib.sha256()

    def done(self) -> Hashes:
        """What it was."""
        rest = (self._part.hexdigest(),) if self._size % PART_BYTES else ()
        return Hashes(self._whole.hexdigest(), self._size, (*self._parts, *rest))


def bad_parts(known: Sequence[str], found: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the parts that are not what is known of them; empty where that says nothing."""
    if len(known) != len(found):
        return ()
    return tuple(number for number, pair in enumerate(zip(known, found, strict=True)) if pair[0] != pair[1])


def hashes_of(path: Path, told: Callable[[int], None]) -> Hashes:
    """Read a whole file; `told` is told of bytes as they are read.

    Raises:
        InputError: it cannot be read.
    """
    hashing = Hashing()
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(_READ_BYTES):
                hashing.take(data)
                told(len(data))
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror})") from exc
    return hashing.done()
