"""Bytes taken piece by piece, never beyond their end. Every bounds check of the carriers is here."""

from collections.abc import Iterator
from typing import NamedTuple

MAX_PIECES = 2_000_000
"""Pieces of one file. A film of 100 MB has some ten thousand; a file made of empty ones ends here."""
KEY_BYTES = 256
"""Longest key that is looked at. PNG allows 79 bytes."""


class Cut(Exception):
    """The bytes end before what they announce: a cut or damaged file. Never leaves the carriers."""


class Text(NamedTuple):
    """A text that a file carries under a key, as it stands there."""

    key: str
    data: memoryview
    encoding: str = "utf-8"
    deflated: bool = False


class Span:
    """A window on the bytes of a file, read from its front."""

    def __init__(self, data: memoryview, *, budget: list[int] | None = None) -> None:
        """`budget`: the pieces left for the whole file, shared by all its windows."""
        self._data = data
        self._budget = [MAX_PIECES] if budget is None else budget
        self.place = 0
        """Bytes taken so far."""

    def __len__(self) -> int:
        return len(self._data) - self.place

    def take(self, size: int) -> memoryview:
        """The next bytes.

        Raises:
            Cut: there are not as many.
        """
        if not 0 <= size <= len(self):
            raise Cut
        self._budget[0] -= 1
        if self._budget[0] < 0:
            raise Cut
        self.place += size
        return self._data[self.place - size : self.place]

    def inner(self, size: int) -> "Span":
        """A window on the next bytes, which are taken."""
        return Span(self.take(size), budget=self._budget)

    def rest(self) -> memoryview:
        """All that is left."""
        return self.take(len(self))

    def at(self, place: int, size: int) -> memoryview:
        """Bytes at an offset from the window's start, as EXIF points to them.

        Raises:
            Cut: they are not all there.
        """
        if place < 0 or size < 0 or place + size > len(self._data):
            raise Cut
        return self._data[place : place + size]

    def big(self, size: int) -> int:
        """An unsigned number, most significant byte first."""
        return int.from_bytes(self.take(size), "big")

    def little(self, size: int) -> int:
        """An unsigned number, least significant byte first."""
        return int.from_bytes(self.take(size), "little")

    def skip(self, size: int) -> None:
        """Leave out the next bytes."""
        self.take(size)

    def until_zero(self) -> str:
        """The short text up to the next zero byte, which is taken.

        Raises:
            Cut: there is none within the length of a key.
        """
        head = bytes(self._data[self.place : self.place + KEY_BYTES])
        size = head.find(0)
        if size < 0:
            raise Cut
        self.skip(size + 1)
        return head[:size].decode("latin-1")


def short(data: memoryview) -> str:
    """The text of a key, or as much of it as any key has."""
    return bytes(data[:KEY_BYTES]).decode("utf-8", "replace")


Texts = Iterator[Text]
"""What a parser gives: texts in the order of the file, ended by `Cut` where the file is cut."""
