"""Temporaries, adoption, and what two processes do to each other."""

import os
from pathlib import Path

import pytest

from comfyfarm.cache.blobs import BlobStore, blob_key
from comfyfarm.cache.temporary import open_temporary

_SHA = "ab" * 32


def _fill(blobs: BlobStore, data: bytes) -> Path:
    temporary = blobs.temporary(_SHA)
    os.write(temporary.fd, data)
    return blobs.adopt(temporary, _SHA)


def test_a_blob_lies_under_its_hash_read_only(blobs: BlobStore) -> None:
    path = _fill(blobs, b"data")

    assert path == blobs.root / "sha256" / "ab" / _SHA == blobs.root / blob_key(_SHA)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"data", 0o444)
    assert blobs.has(_SHA)
    assert blobs.has(_SHA, size=4)
    assert not blobs.has(_SHA, size=5)


def test_nothing_is_left_of_a_temporary_once_it_is_adopted_or_discarded(blobs: BlobStore) -> None:
    _fill(blobs, b"data")
    temporary = blobs.temporary("cd" * 32)
    temporary.discard()
    temporary.discard()

    assert sorted(path.name for path in blobs.root.iterdir()) == ["sha256"]


def test_the_second_to_come_adopts_the_file_of_the_first(blobs: BlobStore) -> None:
    second = blobs.temporary(_SHA)
    os.write(second.fd, b"data")
    inode = _fill(blobs, b"data").stat().st_ino

    assert blobs.adopt(second, _SHA).stat().st_ino == inode
    assert not (blobs.root / ".partial").exists()


def test_two_temporaries_of_one_hash_are_two_files(blobs: BlobStore) -> None:
    first, second = blobs.temporary(_SHA), blobs.temporary(_SHA)

    assert first.path != second.path
    assert first.path.exists()
    first.discard()
    second.discard()


def test_sweeping_takes_the_temporaries_of_the_dead_only(blobs: BlobStore) -> None:
    alive = blobs.temporary(_SHA)
    (blobs.root / ".partial" / ("cd" * 32)).mkdir()
    (blobs.root / ".partial" / ("cd" * 32) / "1-dead").write_bytes(b"rest")
    (blobs.root / ".partial" / _SHA / "2-dead").write_bytes(b"rest")

    removed = blobs.sweep()

    assert removed == 2
    assert [path for path in (blobs.root / ".partial").rglob("*") if path.is_file()] == [alive.path]
    alive.discard()


def test_a_quarantined_blob_is_out_of_sight_and_kept(blobs: BlobStore) -> None:
    _fill(blobs, b"bad")

    taken = blobs.quarantine(_SHA, reason="test")

    assert not blobs.has(_SHA)
    assert taken is not None
    assert taken.read_bytes() == b"bad"
    assert blobs.quarantine(_SHA, reason="again") is None


def test_a_folder_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(NotADirectoryError):
        open_temporary(tmp_path / "file" / "below")
