"""SHA-256 of each part of a file that has landed, to find the bad ones among the good."""

import hashlib

from comfyfarm.cache.transfer.buffers import BufferPool, Stop
from comfyfarm.cache.transfer.chunks import CHUNK_BYTES, PART_BYTES
from comfyfarm.cache.transfer.direct import DirectFile


def digest_parts(file: DirectFile, size: int, *, pool: BufferPool, stop: Stop) -> tuple[str, ...]:
    """In hexadecimal, one for each 16 MiB, read from the disk.

    Raises:
        OSError: the disk is broken.
        Exception: whatever `stop` raises.
    """
    buffer = pool.take_for_reading(stop)
    view = memoryview(buffer)
    digests = []
    try:
        for start in range(0, size, PART_BYTES):
            digest = hashlib.sha256()
            for at in range(start, min(start + PART_BYTES, size), CHUNK_BYTES):
                count = min(CHUNK_BYTES, size - at)
                file.read(buffer, count, at)
                digest.update(view[:count])
            digests.append(digest.hexdigest())
            stop()
    finally:
        pool.give(buffer)
    return tuple(digests)
