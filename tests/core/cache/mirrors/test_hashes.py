"""The hashes of a file and of its parts, whatever pieces it comes in."""

import hashlib
from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.hashes import Hashing, hashes_of
from comfyfarm.errors import InputError

_PART = 16 << 20


@pytest.mark.parametrize("piece", [1 << 20, 3_333_333, 40 << 20])
def test_parts_are_cut_at_sixteen_mebibytes_whatever_comes(content: bytes, piece: int) -> None:
    hashing = Hashing()
    for at in range(0, len(content), piece):
        hashing.take(content[at : at + piece])

    found = hashing.done()

    assert (found.sha256, found.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert found.parts == tuple(
        hashlib.sha256(content[at : at + _PART]).hexdigest() for at in range(0, len(content), _PART)
    )


def test_a_file_of_whole_parts_has_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(bytes(_PART))
    (tmp_path / "empty").touch()
    told: list[int] = []

    assert len(hashes_of(tmp_path / "whole", told.append).parts) == 1
    assert sum(told) == _PART
    assert hashes_of(tmp_path / "empty", told.append).parts == ()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.pt: cannot be read"):
        hashes_of(tmp_path / "absent.pt", lambda _count: None)
