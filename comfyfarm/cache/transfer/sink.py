"""Where the parts of a file land: written at their offsets, hashed in order by a thread that follows behind.

SHA-256 is serial and cannot be joined from parts; reading finished parts back from the page cache, in order,
hides its time behind the transfer and keeps no part in memory.
"""

import hashlib
import os
import threading
from typing import NamedTuple

PART_BYTES = 16 << 20
_READ_BACK_BYTES = 4 << 20


class Part(NamedTuple):
    """A stretch of a file, `end` not included."""

    number: int
    start: int
    end: int


def plan_parts(size: int, part_bytes: int = PART_BYTES) -> tuple[Part, ...]:
    """The whole file in ascending parts; an empty file is one empty part."""
    starts = range(0, max(size, 1), part_bytes)
    return tuple(Part(n, start, min(start + part_bytes, size)) for n, start in enumerate(starts))


class Sink:
    """A file of known size that is being filled, in any order, from any thread."""

    def __init__(self, fd: int, parts: tuple[Part, ...]) -> None:
        self._fd = fd
        self._parts = parts
        self._done: set[int] = set()
        self._stopped = False
        self._change = threading.Condition()
        self._digest = hashlib.sha256()
        self._failure: OSError | None = None
        # A daemon: a process that must end does not wait for a hash.
        self._follower = threading.Thread(target=self._follow, name="hash", daemon=True)

    def start(self) -> None:
        """Reserve the whole size on the disk, and begin to hash.

        Raises:
            OSError: there is no room for the file.
        """
        size = self._parts[-1].end
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        self._follower.start()

    def write(self, offset: int, data: bytes) -> int:
        """Write all of `data` at `offset`; returns how many bytes that were.

        Raises:
            OSError: the disk is full or broken.
        """
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], offset + written)
        return written

    def finish(self, part: Part) -> None:
        """Say that all bytes of this part have been written."""
        with self._change:
            self._done.add(part.number)
            self._change.notify()

    def digest(self) -> str:
        """SHA-256 of the whole file, in hexadecimal, once all parts are finished.

        Raises:
            OSError: a part could not be read back.
        """
        self._follower.join()
        if self._failure is not None:
            raise self._failure
        return self._digest.hexdigest()

    def stop(self) -> None:
        """End the hashing, finished or not."""
        with self._change:
            self._stopped = True
            self._change.notify()
        if self._follower.ident is not None:
            self._follower.join()

    def _follow(self) -> None:
        buffer = bytearray(min(_READ_BACK_BYTES, max(self._parts[-1].end, 1)))
        try:
            for part in self._parts:
                if not self._wait_for(part):
                    return
                self._hash(part, memoryview(buffer))
        except OSError as exc:
            self._failure = exc

    def _wait_for(self, part: Part) -> bool:
        with self._change:
            self._change.wait_for(lambda: self._stopped or part.number in self._done)
            return not self._stopped

    def _hash(self, part: Part, buffer: memoryview) -> None:
        at = part.start
        while at < part.end and not self._stopped:
            got = os.preadv(self._fd, [buffer[: part.end - at]], at)
            if not got:
                raise OSError("the file is shorter than what was written to it")
            self._digest.update(buffer[:got])
            at += got
