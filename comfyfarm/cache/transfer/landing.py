"""Where a file of known size lands: it fills from any thread, in any order, in chunks of 1 MiB.

Each chunk is received into a buffer, written past the page cache, and hashed from that buffer when its turn
comes. A journal says what is safely here, so that the next process goes on after a crash. The folder is held
by a lock of the kernel: one landing for one content, over all threads and processes of the host.
"""

import contextlib
import errno
import logging
import mmap
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.transfer.buffers import POOL, BufferPool, Stop
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, PART_BYTES, Chunk
from comfyfarm.cache.transfer.follower import Follower
from comfyfarm.cache.transfer.landing_folder import LandingFolder, open_folder
from comfyfarm.cache.transfer.part_digests import digest_parts
from comfyfarm.cache.transfer.syncer import Syncer
from comfyfarm.cache.transfer.trouble import Trouble, named_error

__all__ = ["CHUNK_BYTES", "PART_BYTES", "Chunk", "Landing", "open_landing"]

_log = logging.getLogger(__name__)


class Landing:
    """One file that fills. All methods are safe from any thread; made by `open_landing`."""

    def __init__(self, folder: LandingFolder, pool: BufferPool) -> None:
        chunks, file, disk = folder.chunks, folder.file, folder.disk
        self.size = chunks.size
        self.resumed_bytes = chunks.here_bytes()
        """Here already from an earlier life."""
        self._folder = folder
        self._chunks = chunks
        self._file = file
        self._pool = pool
        self._trouble = Trouble()
        self._shelf = pool.open_shelf()
        self._follower = Follower(file, chunks, pool=pool, shelf=self._shelf, trouble=self._trouble)
        self._trouble.on_first(self._follower.wake)
        self._syncer = Syncer(file, folder.journal, size=self.size, disk=disk, trouble=self._trouble)
        self._idle = threading.Condition()
        self._writing: set[int] = set()
        self._is_closed = False
        self._is_published = False

    def start(self) -> None:
        """Begin to hash what is here; `open_landing` has done it."""
        self._follower.start()
        self._syncer.start()

    def is_here(self, at: int) -> bool:
        """Whether the chunk at this offset has been taken, in this life or an earlier one."""
        return self._chunks.has(at)

    def missing(self) -> tuple[range, ...]:
        """Stretches that are not here, ascending; they begin at chunks."""
        with self._idle:
            return self._chunks.ranges(here=False)

    def buffer(self, at: int, stop: Stop) -> Chunk:
        """Room for the chunk at this offset; the caller puts or drops it. One at a time for each thread.

        Waits while all room of the process is being filled, and calls `stop` then.

        Raises:
            OSError: the disk failed, or the landing is closed.
            Exception: whatever `stop` raises.
        """
        self._check()

        def check() -> None:
            stop()
            self._check()

        return Chunk(at, self._pool.take(self._shelf, at, check), self._chunks.length(at))

    def put(self, chunk: Chunk) -> bool:
        """The chunk is whole: write it. False when another brought it first, or nobody wants it any more.

        Raises:
            OSError: the disk failed; so will every other call.
        """
        buffer = chunk.surrender()
        if buffer is None:
            raise ValueError("this chunk was put or dropped before")
        if not self._claim(chunk.at):
            self._pool.give(buffer)
            self._trouble.check()
            return False
        try:
            self._write(chunk.at, buffer)
        finally:
            self._let_go(chunk.at)
        return True

    def drop(self, chunk: Chunk) -> None:
        """Give a buffer back unfilled. Safe to repeat, and after `put`."""
        buffer = chunk.surrender()
        if buffer is not None:
            self._pool.give(buffer)

    def forget(self, parts: Iterable[int]) -> None:
        """Parts of 16 MiB were found to be bad: they are missing again, and hashing starts over.

        Only while nobody fills the landing: a chunk on its way now would count as new.

        Raises:
            OSError: the journal cannot be written.
        """
        bad = [range(n * PART_BYTES, min((n + 1) * PART_BYTES, self.size)) for n in sorted(set(parts))]
        bad = [each for each in bad if each]
        with self._idle:
            for each in bad:
                self._chunks.mark(each, here=False)
        self._pool.clear(self._shelf)
        self._follower.restart()
        with self._reported():
            self._syncer.lose(bad)

    def forget_all(self) -> None:
        """All of it was bad. As `forget`."""
        self.forget(range(-(-self.size // PART_BYTES)))

    def digest(self, stop: Stop) -> str:
        """SHA-256 of the whole in hexadecimal, once every chunk is here.

        Raises:
            OSError: the disk failed.
            Exception: whatever `stop` raises; it is called at least every 0.1 s.
        """
        return self._follower.digest(stop)

    def part_digests(self) -> tuple[str, ...]:
        """SHA-256 of each 16 MiB, read from the disk; every chunk is here. For healing only.

        Raises:
            OSError: the disk failed.
        """
        with self._reported():
            return digest_parts(self._file, self.size, pool=self._pool, stop=self._check)
        raise AssertionError  # pragma: no cover - the block above raises or returns

    def publish(self, final: Path, *, mode: int) -> None:
        """Make the whole file visible as `final`, durable and with these permissions; ends the landing.

        Raises:
            OSError: the disk failed; what is here stays for a next try unless it is visible already.
        """
        self._follower.end()
        self._syncer.end()
        # The system tells of bytes that it lost once, perhaps to the journal's thread a moment ago.
        self._trouble.check()
        with self._reported():
            self._file.publish(final, size=self.size, mode=mode)
            self._is_published = True
            self._folder.disk.sync_folder(final.parent)
        self.close(keep=False)

    def close(self, *, keep: bool) -> None:
        """Let go of lock and buffers. Safe to repeat; a failure of the disk is logged, not raised.

        Args:
            keep: leave what is here for a next try; else remove it.
        """
        with self._idle:
            if self._is_closed:
                return
            self._is_closed = True
            self._idle.wait_for(lambda: not self._writing)
        self._follower.end()
        self._syncer.end()
        self._pool.close_shelf(self._shelf)
        is_kept = keep and not self._is_published and not self._folder.held.is_private
        try:
            if is_kept and self._chunks.here_bytes():
                self._syncer.flush()
                self._folder.leave()
            else:
                self._folder.remove()
        except OSError as exc:
            _log.warning("%s: not left as it should be: %s", self._file.path.parent, exc)
        finally:
            self._folder.let_go()

    def _claim(self, at: int) -> bool:
        with self._idle:
            if self._is_closed or self._trouble.is_there or self._chunks.has(at) or at in self._writing:
                return False
            self._writing.add(at)
            return True

    def _write(self, at: int, buffer: mmap.mmap) -> None:
        try:
            self._file.write(buffer, self._chunks.length(at), at)
        except OSError as exc:
            self._pool.give(buffer)
            raise self._trouble.report(exc, self._file.path) from exc
        self._pool.park(self._shelf, at, buffer)
        with self._idle:
            self._chunks.mark(range(at, at + 1))
        self._syncer.wrote(at)
        self._follower.came(at)

    def _let_go(self, at: int) -> None:
        with self._idle:
            self._writing.discard(at)
            if self._is_closed and not self._writing:
                self._idle.notify()

    def _check(self) -> None:
        self._trouble.check()
        if self._is_closed:
            raise OSError(errno.EBADF, "the transfer is over", str(self._file.path))

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise self._trouble.report(exc, self._file.path) from exc


def open_landing(
    folder: Path, size: int, *, disk: Disk = SYSTEM_DISK, stop: Stop, pool: BufferPool = POOL
) -> Landing:
    """Begin, or go on where an earlier life ended. Waits while another thread or process lands the same file.

    Args:
        folder: `<cache>/.partial/<sha>`; made if need be.
        size: of the file in bytes.
        disk: what it lies on.
        stop: called at least every 0.1 s while it waits; raises to give up.
        pool: the memory.

    Raises:
        OSError: there is no room for the whole file, the disk is read-only or broken, or no thread can start.
        Exception: whatever `stop` raises.
    """
    try:
        opened = open_folder(folder, size, disk=disk, stop=stop)
    except OSError as exc:
        raise named_error(exc, folder) from exc
    landing = Landing(opened, pool)
    try:
        landing.start()
    except RuntimeError as exc:  # no thread is to be had: the folder is free for others
        landing.close(keep=True)
        raise named_error(exc, folder) from exc
    return landing
