"""A source that is a file of this machine: another disk, a shared folder, a mirror in a folder."""

import errno
import os
from pathlib import Path

from comfyfarm.cache.transfer.landing import CHUNK_BYTES, Chunk, Landing
from comfyfarm.cache.transfer.source import Flow, SourceFailed


def copy_file(path: Path, size: int, landing: Landing, *, flow: Flow) -> None:
    """Fill what the landing lacks from a file of this machine.

    Raises:
        SourceFailed: it is not there, not readable, or not of this size.
        Stopped: the transfer was cancelled.
        OSError: the landing cannot be written.
    """
    fd = _open(path, size)
    try:
        for stretch in landing.missing():
            for at in range(stretch.start, stretch.stop, CHUNK_BYTES):
                flow.check()
                chunk = landing.buffer(at, flow.check)
                _read(fd, chunk, path, landing)
                if landing.put(chunk):
                    flow.count(len(chunk.view))
    finally:
        os.close(fd)


def _open(path: Path, size: int) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        reason = "not there" if exc.errno in {errno.ENOENT, errno.ENOTDIR} else str(exc.strerror)
        raise SourceFailed(str(path), reason) from exc
    found = os.fstat(fd).st_size
    if found != size:
        os.close(fd)
        raise SourceFailed(str(path), f"{found} bytes instead of {size}")
    return fd


def _read(fd: int, chunk: Chunk, path: Path, landing: Landing) -> None:
    filled = 0
    try:
        while filled < len(chunk.view):
            got = os.preadv(fd, [chunk.view[filled:]], chunk.at + filled)
            if not got:
                raise SourceFailed(str(path), "became shorter while it was read")
            filled += got
    except OSError as exc:
        landing.drop(chunk)
        raise SourceFailed(str(path), str(exc.strerror)) from exc
    except SourceFailed:
        landing.drop(chunk)
        raise
