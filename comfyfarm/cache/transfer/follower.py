"""The hash of a file that is being filled: a thread that takes its chunks in order, from memory where it can.

SHA-256 is serial and cannot be joined from parts. Chunks that came early lie parked in buffers; those whose
buffer was taken away meanwhile are read back from the disk.
"""

import hashlib
import mmap
import threading

from comfyfarm.cache.transfer.buffers import BufferPool, Shelf, Stop
from comfyfarm.cache.transfer.chunks import ChunkMap
from comfyfarm.cache.transfer.direct import DirectFile
from comfyfarm.cache.transfer.read_ahead import ReadAhead
from comfyfarm.cache.transfer.trouble import Trouble

_POLL_S = 0.1


class _Ended(Exception):
    """Nobody needs the hash any more."""


class Follower:
    """SHA-256 of one file, computed while the file fills."""

    def __init__(
        self, file: DirectFile, chunks: ChunkMap, *, pool: BufferPool, shelf: Shelf, trouble: Trouble
    ) -> None:
        self._file = file
        self._chunks = chunks
        self._pool = pool
        self._shelf = shelf
        self._trouble = trouble
        self._ahead = ReadAhead(file, pool)
        lock = threading.Lock()
        self._came = threading.Condition(lock)
        self._finished = threading.Condition(lock)
        self._turn = 0
        # A new one for each beginning: by it the thread knows that its last chunk no longer counts.
        self._digest = hashlib.sha256()
        self._is_ended = False
        # A daemon: a process that must end does not wait for a hash.
        self._thread = threading.Thread(target=self._run, name="hash", daemon=True)

    def start(self) -> None:
        """Begin with what is here already."""
        self._thread.start()

    def came(self, at: int) -> None:
        """The chunk at this offset is here now, and marked so."""
        with self._came:
            if at == self._turn:
                self._came.notify()

    def restart(self) -> None:
        """Chunks are to come anew: hash from the beginning."""
        with self._came:
            self._turn = 0
            self._digest = hashlib.sha256()
            self._came.notify()

    def digest(self, stop: Stop) -> str:
        """In hexadecimal, once every chunk is here and hashed.

        Raises:
            OSError: the disk failed.
            Exception: whatever `stop` raises; it is called at least every 0.1 s.
        """
        with self._finished:
            while self._turn < self._chunks.size:
                self._trouble.check()
                stop()
                self._finished.wait(_POLL_S)
            self._trouble.check()
            return self._digest.hexdigest()

    def wake(self) -> None:
        """The disk failed: whoever waits looks for himself."""
        with self._came:
            self._came.notify()
            self._finished.notify_all()

    def end(self) -> None:
        """Stop hashing, and wait until the thread is gone."""
        with self._came:
            self._is_ended = True
            self._came.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                at, digest = self._next()
                if not at:
                    # A new beginning: what was read ahead may be what was found to be bad.
                    self._ahead.take(-1)
                self._hash_one(at, digest)
        except _Ended:
            return
        except Exception as exc:  # noqa: BLE001 - told to everyone; else a digest would wait for ever
            self._trouble.report(exc, self._file.path)
        finally:
            self._ahead.end()

    def _next(self) -> tuple[int, "hashlib._Hash"]:
        with self._came:
            while not self._is_turn_here():
                self._check()
                self._came.wait()
            self._check()
            return self._turn, self._digest

    def _is_turn_here(self) -> bool:
        return self._turn < self._chunks.size and self._chunks.has(self._turn)

    def _check(self) -> None:
        if self._is_ended or self._trouble.is_there:
            raise _Ended

    def _hash_one(self, at: int, digest: "hashlib._Hash") -> None:
        count = self._chunks.length(at)
        parked = self._pool.unpark(self._shelf, at)
        buffer = parked or self._ahead.take(at) or self._read_back(at, count)
        turn = at
        try:
            if parked is None:
                self._read_ahead(at + count)
            digest.update(memoryview(buffer)[:count])
            turn = at + count
        finally:
            self._pool.give_hashed(self._shelf, buffer, turn=turn, was_parked=parked is not None)
        with self._came:
            if digest is self._digest:
                self._turn = turn
                if self._turn >= self._chunks.size:
                    self._finished.notify_all()

    def _read_ahead(self, at: int) -> None:
        is_here = at < self._chunks.size and self._chunks.has(at)
        if is_here and not self._pool.is_parked(self._shelf, at):
            self._ahead.begin(at, self._chunks.length(at))

    def _read_back(self, at: int, count: int) -> mmap.mmap:
        buffer = self._pool.take_for_reading(self._check)
        try:
            self._file.read(buffer, count, at)
        except BaseException:
            self._pool.give(buffer)
            raise
        return buffer
