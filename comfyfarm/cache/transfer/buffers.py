"""The memory of all transfers of this process: page-aligned buffers of 1 MiB, 48 of them at most.

A buffer is free, being filled, being read, or *parked*: full, on disk already, waiting for its turn to be
hashed. While a hash keeps giving parked ones back, who needs room waits a moment for it, the most urgent
first. Where the hash waits itself, for a slow connection, the parked buffer whose turn is farthest is taken
away, and read back later. So nobody waits for long for a hash, and a hash never for a connection's buffer.
"""

import mmap
import threading
from collections.abc import Callable

from comfyfarm.cache.transfer.chunks import CHUNK_BYTES
from comfyfarm.clock import SystemClock

POOL_BUFFERS = 48
"""Measured on loopback with 4 and 16 connections: 64 or 32 are no faster, and nothing had to be read back."""
FOR_READERS = 2
"""Never given to connections: with these, what was taken away is read back."""
_PATIENCE_S = 0.02
"""A hash that gave nothing back for so long waits itself, for a connection."""
_BUSY = 0.3
"""A hash that works for less than this share of its time waits for slow connections."""
_SMOOTHING = 0.1
_MOST_PATIENCE_S = 0.25

_clock = SystemClock()
Stop = Callable[[], None]


class Shelf:
    """What one file has parked, and how far its hash is."""

    def __init__(self) -> None:
        self.turn = 0
        """Offset that is hashed next, or just now."""
        self.freed_s = 0.0
        """When the hash last gave a parked buffer back; on a monotonic clock."""
        self.busy = 1.0
        """Share of its time for which the hash worked lately: 1 when it is what all others wait for."""
        self._idle_since_s = self._busy_since_s = _clock.monotonic()

    def begin(self, at: int) -> None:
        """The hash begins with the chunk at this offset."""
        self.turn = at
        self._busy_since_s = _clock.monotonic()

    def end(self, turn: int, *, was_parked: bool) -> None:
        """The hash is done with a chunk, and comes to this offset."""
        self.turn = turn
        now = _clock.monotonic()
        worked_s, all_s = now - self._busy_since_s, now - self._idle_since_s
        self.busy += _SMOOTHING * (worked_s / all_s - self.busy) if all_s else 0
        self._idle_since_s = now
        if was_parked:
            self.freed_s = now


class _Waiter:
    """One who needs a buffer; whoever gives one hands it over."""

    def __init__(self, lock: threading.Lock, shelf: Shelf | None = None, at: int = 0) -> None:
        self.shelf = shelf
        self.at = at
        self.came = threading.Condition(lock)
        self.since_s = _clock.monotonic()
        self.buffer: mmap.mmap | None = None

    @property
    def urgency(self) -> int:
        """Bytes until its turn to be hashed; readers come first."""
        return self.at - self.shelf.turn if self.shelf else -1

    def is_patient(self) -> bool:
        """Whether its file's hash will soon give a buffer back by itself."""
        if self.shelf is None or self.at <= self.shelf.turn:
            return False
        now = _clock.monotonic()
        is_hash_busy = self.shelf.busy > _BUSY and now - self.shelf.freed_s < _PATIENCE_S
        return is_hash_busy and now - self.since_s < _MOST_PATIENCE_S


class BufferPool:
    """At most `limit` buffers, shared by any number of files and threads."""

    def __init__(self, limit: int = POOL_BUFFERS, *, for_readers: int = FOR_READERS) -> None:
        self._limit = limit
        self._for_readers = for_readers
        self._made = 0
        self._free: list[mmap.mmap] = []
        self._parked: dict[tuple[Shelf, int], mmap.mmap] = {}
        self._shelves: set[Shelf] = set()
        self._waiters: list[_Waiter] = []
        self._lock = threading.Lock()

    def open_shelf(self) -> Shelf:
        """For one more file."""
        shelf = Shelf()
        with self._lock:
            self._shelves.add(shelf)
        return shelf

    def close_shelf(self, shelf: Shelf) -> None:
        """A file is done: what it parked is free. With the last file the memory goes back to the system."""
        with self._lock:
            self._shelves.discard(shelf)
            self._clear(shelf)

    def clear(self, shelf: Shelf) -> None:
        """Give up what this file has parked."""
        with self._lock:
            self._clear(shelf)

    def take(self, shelf: Shelf, at: int, stop: Stop) -> mmap.mmap:
        """Room for the bytes at this offset. Waits while all buffers are being filled or read.

        Raises:
            Exception: whatever `stop` raises; it is called at least every 0.02 s while this waits.
        """
        with self._lock:
            return self._obtain(self._limit - self._for_readers) or self._wait(
                _Waiter(self._lock, shelf, at), stop
            )

    def take_for_reading(self, stop: Stop) -> mmap.mmap:
        """Room to read something back into. Waits for other readers at most.

        Raises:
            Exception: whatever `stop` raises; it is called at least every 0.02 s while this waits.
        """
        with self._lock:
            return self._obtain(self._limit) or self._wait(_Waiter(self._lock), stop)

    def spare_for_reading(self) -> mmap.mmap | None:
        """Room to read something back into, if there is some without waiting or taking it from anyone."""
        with self._lock:
            return self._obtain(self._limit)

    def is_parked(self, shelf: Shelf, at: int) -> bool:
        """Whether the chunk at this offset need not be read back, as things stand."""
        return (shelf, at) in self._parked

    def give(self, buffer: mmap.mmap) -> None:
        """A buffer is free again."""
        with self._lock:
            self._put_back(buffer)

    def park(self, shelf: Shelf, at: int, buffer: mmap.mmap) -> None:
        """A full buffer whose bytes are on disk: it may be taken away from now on."""
        with self._lock:
            if shelf in self._shelves and (shelf, at) not in self._parked:
                self._parked[shelf, at] = buffer
            else:
                self._put_back(buffer)

    def unpark(self, shelf: Shelf, at: int) -> mmap.mmap | None:
        """The parked buffer of this offset; None when it was taken away. Its turn has come."""
        with self._lock:
            shelf.begin(at)
            return self._parked.pop((shelf, at), None)

    def give_hashed(self, shelf: Shelf, buffer: mmap.mmap, *, turn: int, was_parked: bool) -> None:
        """A buffer has been hashed, and the next turn is at this offset."""
        with self._lock:
            shelf.end(turn, was_parked=was_parked)
            self._put_back(buffer)

    def _obtain(self, limit: int) -> mmap.mmap | None:
        if self._made - len(self._free) >= limit:
            return None
        if self._free:
            return self._free.pop()
        # Anonymous memory begins at a page, as direct input and output need it.
        buffer = mmap.mmap(-1, CHUNK_BYTES)
        self._made += 1
        return buffer

    def _wait(self, waiter: _Waiter, stop: Stop) -> mmap.mmap:
        self._waiters.append(waiter)
        try:
            while waiter.buffer is None:
                if self._parked and not waiter.is_patient():
                    return self._take_farthest()
                waiter.came.wait(_PATIENCE_S)
                if waiter.buffer is None:
                    stop()
        except BaseException:
            if waiter.buffer is not None:
                self._free.append(waiter.buffer)
            raise
        finally:
            self._waiters.remove(waiter)
        return waiter.buffer

    def _take_farthest(self) -> mmap.mmap:
        farthest = max(self._parked, key=lambda key: key[1] - key[0].turn)
        return self._parked.pop(farthest)

    def _put_back(self, buffer: mmap.mmap) -> None:
        self._free.append(buffer)
        if not self._shelves:
            self._made -= len(self._free)
            self._free.clear()
            return
        waiting = [each for each in self._waiters if each.buffer is None]
        if waiting:
            first = min(waiting, key=lambda each: each.urgency)
            limit = self._limit - (self._for_readers if first.shelf else 0)
            first.buffer = self._obtain(limit)
            # It alone: nobody wakes up in vain.
            first.came.notify()

    def _clear(self, shelf: Shelf) -> None:
        for key in [key for key in self._parked if key[0] is shelf]:
            self._put_back(self._parked.pop(key))
        if not self._shelves:
            self._made -= len(self._free)
            self._free.clear()


POOL = BufferPool()
"""Of this process. It takes no memory before the first transfer."""
