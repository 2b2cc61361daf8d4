"""A file in chunks of 1 MiB: the room for one, and which of them are here."""

import mmap

CHUNK_BYTES = 1 << 20
PART_BYTES = 16 << 20


class Chunk:
    """Room for one chunk, of one thread. Its `view` must not be used once it was put or dropped."""

    __slots__ = ("_buffer", "at", "filled", "view")

    def __init__(self, at: int, buffer: mmap.mmap, length: int) -> None:
        self.at = at
        """Its offset in the file."""
        self.view = memoryview(buffer)[:length]
        """Exactly as long as the chunk; begins at a page."""
        self.filled = 0
        """Bytes received so far: a request that breaks resumes inside the chunk."""
        self._buffer: mmap.mmap | None = buffer

    def surrender(self) -> mmap.mmap | None:
        """The buffer, once; for the landing only."""
        buffer, self._buffer = self._buffer, None
        return buffer


class ChunkMap:
    """Flags for the chunks of a file of `size` bytes, at multiples of 1 MiB; the last one may be shorter.

    Not thread-safe; whoever owns it has a lock.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = -(-size // CHUNK_BYTES)
        self._flags = bytearray(self.count)

    def has(self, at: int) -> bool:
        """Whether the chunk that begins at this offset is here."""
        return bool(self._flags[at // CHUNK_BYTES])

    def mark(self, stretch: range, *, here: bool = True) -> None:
        """All chunks that begin in this stretch are here, or no longer."""
        first, last = -(-stretch.start // CHUNK_BYTES), -(-min(stretch.stop, self.size) // CHUNK_BYTES)
        self._flags[first:last] = bytes([here]) * max(last - first, 0)

    def length(self, at: int) -> int:
        """Bytes of the chunk at this offset."""
        return min(CHUNK_BYTES, self.size - at)

    def ranges(self, *, here: bool) -> tuple[range, ...]:
        """Stretches that are here, or not, ascending and as long as can be."""
        found = []
        at, flag = 0, bytes([here])
        while (start := self._flags.find(flag, at)) >= 0:
            end = self._flags.find(bytes([not here]), start)
            at = end if end >= 0 else self.count
            found.append(range(start * CHUNK_BYTES, min(at * CHUNK_BYTES, self.size)))
        return tuple(found)

    def here_bytes(self) -> int:
        """How many bytes are here."""
        full = self._flags.count(1) * CHUNK_BYTES
        is_last_here = self.count and self._flags[-1]
        return full - (self.count * CHUNK_BYTES - self.size if is_last_here else 0)
