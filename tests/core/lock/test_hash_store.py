"""Hashes that are kept: never of a file that is being written, never lost with a kill."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from comfyfarm.errors import TryLater
from comfyfarm.lock import hash_store
from comfyfarm.lock.hash_store import HashStore, Meter

LONG_AGO = 1_700_000_000


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def test_a_file_that_grows_while_it_is_hashed_is_hashed_again(tmp_path: Path) -> None:
    path = put(tmp_path / "a", b"half")
    grown: list[int] = []

    def write_on(_file: str, _done: int, _total: int) -> None:
        if not grown:
            grown.append(path.write_bytes(b"whole now"))

    found = HashStore().of(path, Meter(write_on, 0))

    assert found == (hashlib.sha256(b"whole now").hexdigest(), 9)


def test_a_file_that_never_rests_is_an_error(tmp_path: Path) -> None:
    path = put(tmp_path / "a", b"x")

    def write_on(_file: str, _done: int, _total: int) -> None:
        with path.open("ab") as file:
            file.write(b"x")

    with pytest.raises(TryLater, match="is being written"):
        HashStore().of(path, Meter(write_on, 0))


def test_what_two_have_found_is_kept_by_both(tmp_path: Path) -> None:
    one, other = HashStore(tmp_path), HashStore(tmp_path)
    one.of(put(tmp_path / "a", b"a"))
    other.of(put(tmp_path / "b", b"bb"))
    one.save()
    other.save()

    assert len(json.loads((tmp_path / "model-hashes.json").read_text())) == 2


def test_much_hashing_is_saved_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_store, "_SAVE_AFTER_BYTES", 3)
    store = HashStore(tmp_path / "state")
    store.of(put(tmp_path / "a", b"1234"))

    assert (tmp_path / "state" / "model-hashes.json").exists()


def test_a_name_that_moved_is_the_same_file(tmp_path: Path) -> None:
    store = HashStore(tmp_path)
    path = put(tmp_path / "a", b"x")
    before = store.of(path)
    seen: list[int] = []
    moved = path.rename(tmp_path / "b")

    assert store.of(moved, Meter(lambda _f, done, _t: seen.append(done), 1)) == before
    assert seen == [1]
