"""Reads the next chunk back from the disk while the one before it is hashed."""

import contextlib
import mmap
import threading

from comfyfarm.cache.transfer.buffers import BufferPool
from comfyfarm.cache.transfer.direct import DirectFile


class ReadAhead:
    """One chunk of one file, of one hash. A thread is started when it is first needed."""

    def __init__(self, file: DirectFile, pool: BufferPool) -> None:
        self._file = file
        self._pool = pool
        self._change = threading.Condition()
        self._at = self._count = 0
        self._buffer: mmap.mmap | None = None
        self._is_reading = False
        self._is_read = False
        self._is_ended = False
        self._thread: threading.Thread | None = None

    def begin(self, at: int, count: int) -> None:
        """Read this chunk, unless there is no room for it at hand."""
        buffer = self._pool.spare_for_reading()
        if buffer is None:
            return
        try:
            self._start()
        except BaseException:
            self._pool.give(buffer)
            raise
        with self._change:
            self._at, self._count, self._buffer = at, count, buffer
            self._is_reading, self._is_read = True, False
            self._change.notify_all()

    def take(self, at: int) -> mmap.mmap | None:
        """The chunk at this offset, if it was read; what was read instead is dropped."""
        with self._change:
            buffer = self._buffer
            if buffer is None:
                return None
            self._change.wait_for(lambda: not self._is_reading)
            self._buffer = None
        if self._at == at and self._is_read:
            return buffer
        self._pool.give(buffer)
        return None

    def end(self) -> None:
        """Drop what was read, and wait until the thread is gone."""
        self.take(-1)
        with self._change:
            self._is_ended = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._is_ended or self._is_reading)
                if not self._is_reading or self._buffer is None:
                    return
                at, count, buffer = self._at, self._count, self._buffer
            # Whatever it is, whoever takes the chunk reads it himself then, and is told.
            with contextlib.suppress(Exception):
                self._file.read(buffer, count, at)
                self._is_read = True
            with self._change:
                self._is_reading = False
                self._change.notify_all()
