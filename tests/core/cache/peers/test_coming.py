"""What is on its way, seen from outside while a landing fills."""

from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.peers.coming import coming, is_fetching
from comfyfarm.cache.transfer.landing import CHUNK_BYTES, open_landing


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "cache")


def never() -> None:
    """Nobody stops."""


def test_a_file_moves_with_every_chunk_until_it_is_whole(store: BlobStore, make_file: Any) -> None:
    file = make_file(5, size=2 * CHUNK_BYTES + 7)
    landing = open_landing(store.root / ".partial" / file.sha256, file.size, stop=never)
    seen = [coming(store, file.sha256)]
    for at in range(0, file.size, CHUNK_BYTES):
        chunk = landing.buffer(at, never)
        chunk.view[:] = file.data[at : at + len(chunk.view)]
        landing.put(chunk)
        seen.append(coming(store, file.sha256))
    busy = is_fetching(store)
    landing.publish(store.path(file.sha256), mode=0o444)

    assert all(one is not None for one in seen)
    moved = [one.moved_ns for one in seen if one]
    assert moved == sorted(moved)
    assert moved[-1] > moved[0]
    assert busy
    assert coming(store, file.sha256) is None
    assert not is_fetching(store)


def test_what_an_earlier_life_left_is_not_on_its_way(store: BlobStore, make_file: Any) -> None:
    file = make_file(5, size=2 * CHUNK_BYTES)
    folder = store.root / ".partial" / file.sha256
    landing = open_landing(folder, file.size, stop=never)
    chunk = landing.buffer(0, never)
    chunk.view[:] = file.data[:CHUNK_BYTES]
    landing.put(chunk)
    landing.close(keep=True)

    assert coming(store, file.sha256) is None
    again = open_landing(folder, file.size, stop=never)
    found = coming(store, file.sha256)
    again.close(keep=False)
    assert found is not None
    assert found.durable_bytes == CHUNK_BYTES


def test_a_torn_journal_counts_nothing(store: BlobStore) -> None:
    folder = store.root / ".partial" / ("ab" * 32)
    landing = open_landing(folder, 10, stop=never)
    for torn in (b"", b"{", b"[]\n", b'{"v":1}\n', b'{"v":1,"size":"x"}\n'):
        (folder / "journal").write_bytes(torn)
        found = coming(store, "ab" * 32)
        assert found is not None
        assert found.durable_bytes == 0
    landing.close(keep=False)


def test_an_empty_cache_fetches_nothing(store: BlobStore) -> None:
    assert not is_fetching(store)
    assert coming(store, "ab" * 32) is None
