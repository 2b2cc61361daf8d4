"""A file that is written past the page cache where the file system can: a copy into it costs twice as much.

Buffers, offsets and lengths are multiples of 4096 then; the end of the file is padded, and cut when it is
published. Where that cannot be (`EINVAL`), the file is written through the page cache, with the same result.
"""

import errno
import fcntl
import logging
import mmap
import os
import stat
from pathlib import Path

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.held_folder import ITSELF, is_regular, open_own_file

_log = logging.getLogger(__name__)

ALIGNED_BYTES = 4096
_O_DIRECT = getattr(os, "O_DIRECT", 0)


class DirectFile:
    """An open file, read and written in whole buffers at aligned offsets, from any thread."""

    def __init__(self, path: Path, fd: int, *, is_direct: bool, disk: Disk) -> None:
        self.path = path
        self._fd = fd
        self.is_direct = is_direct
        self._disk = disk

    def length(self) -> int:
        """Bytes that it has now, padding and room taken beforehand included."""
        return os.fstat(self._fd).st_size

    def reserve(self, size: int) -> None:
        """Take the room for this many bytes.

        Raises:
            OSError: there is not so much.
        """
        self._disk.reserve(self._fd, _padded(size), self.path)

    def write(self, buffer: mmap.mmap, count: int, at: int) -> None:
        """Write the first `count` bytes of a buffer; those behind them, up to a multiple of 4096, are zeroed.

        Raises:
            OSError: the disk is full, read-only or broken.
        """
        if self.is_direct:
            padded = _padded(count)
            buffer[count:padded] = bytes(padded - count)
            try:
                self._disk.write_at(self._fd, memoryview(buffer)[:padded], at, self.path)
            except OSError as exc:
                if exc.errno != errno.EINVAL:
                    raise
                self._stop_direct()
            else:
                return
        self._disk.write_at(self._fd, memoryview(buffer)[:count], at, self.path)

    def read(self, buffer: mmap.mmap, count: int, at: int) -> None:
        """Read `count` bytes into the start of a buffer.

        Raises:
            OSError: the disk is broken, or the file is shorter than that.
        """
        view, got = memoryview(buffer), 0
        while got < count:
            try:
                more = os.preadv(self._fd, [view[got:]], at + got)
            except OSError as exc:
                if exc.errno != errno.EINVAL or not self.is_direct:
                    raise
                self._stop_direct()
                continue
            if not more:
                raise OSError(errno.EIO, "is shorter than what was written to it", str(self.path))
            got += more

    def truncate(self, size: int) -> None:
        """Cut to this length.

        Raises:
            OSError: the disk is read-only or broken.
        """
        self._disk.truncate(self._fd, size, self.path)

    def sync_data(self) -> None:
        """Make durable what has been written so far.

        Raises:
            OSError: it is not durable.
        """
        self._disk.sync_data(self._fd, self.path)

    def publish(self, final: Path, *, size: int, mode: int) -> None:
        """Cut the padding, make all durable, and move it to `final`.

        Raises:
            OSError: the disk is read-only or broken.
        """
        self._disk.truncate(self._fd, size, self.path)
        self._disk.set_mode(self._fd, mode, self.path)
        self._disk.sync(self._fd, self.path)
        self._disk.make_folder(final.parent)
        self._disk.rename(self.path, final)

    def close(self) -> None:
        """Let go of the file. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _stop_direct(self) -> None:
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~_O_DIRECT)
        self.is_direct = False
        _log.debug("%s: written through the page cache, the file system knows no other way", self.path)


def open_direct(path: Path, *, disk: Disk) -> DirectFile:
    """Open a file for reading and writing, created if need be.

    Raises:
        OSError: it cannot be.
    """
    _make_writable(path, disk)
    try:
        return _open(path, _O_DIRECT, disk)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    return _open(path, 0, disk)


def _open(path: Path, flag: int, disk: Disk) -> DirectFile:
    fd = open_own_file(path, os.O_RDWR | os.O_CREAT | flag, disk=disk)
    return DirectFile(path, fd, is_direct=bool(flag), disk=disk)


def _make_writable(path: Path, disk: Disk) -> None:
    """One that was made read-only just before its process died."""
    if not is_regular(path) or path.lstat().st_mode & stat.S_IWUSR:
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | ITSELF)
    try:
        disk.set_mode(fd, 0o644, path)
    finally:
        os.close(fd)


def _padded(count: int) -> int:
    return -(-count // ALIGNED_BYTES) * ALIGNED_BYTES
