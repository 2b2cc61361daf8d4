"""Parts in any order, hashed in order."""

import hashlib
import os
import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.transfer.sink import Sink, plan_parts


@given(size=st.integers(0, 200), part_bytes=st.integers(1, 64))
def test_parts_cover_a_file_once_in_ascending_order(size: int, part_bytes: int) -> None:
    parts = plan_parts(size, part_bytes)

    assert [byte for part in parts for byte in range(part.start, part.end)] == list(range(size))
    assert [part.number for part in parts] == list(range(len(parts)))
    assert all(part.end - part.start <= part_bytes for part in parts)


def test_the_hash_is_the_files_whatever_the_order_of_the_parts(blobs: BlobStore, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(100_001)
    parts = plan_parts(len(data), 1000)
    temporary = blobs.temporary("ab" * 32)
    sink = Sink(temporary.fd, parts)
    sink.start()
    for part in random.Random(2).sample(parts, len(parts)):
        sink.write(part.start, data[part.start : part.end])
        sink.finish(part)

    assert sink.digest() == hashlib.sha256(data).hexdigest()
    assert os.pread(temporary.fd, len(data) + 1, 0) == data
    sink.stop()
    temporary.discard()


def test_a_stopped_sink_hashes_no_further(blobs: BlobStore) -> None:
    temporary = blobs.temporary("ab" * 32)
    sink = Sink(temporary.fd, plan_parts(10, 5))
    sink.start()
    sink.stop()
    temporary.discard()

    assert sink.digest() == hashlib.sha256().hexdigest()
