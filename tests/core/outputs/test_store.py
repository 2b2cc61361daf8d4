"""Output stores, the same promises for a folder and a bucket."""

import hashlib
import os
import random
from pathlib import Path

import pytest

from comfyfarm.cache.places.place import ObjectPlace, PutFile
from comfyfarm.errors import StoreError, UsageError
from comfyfarm.outputs.store import open_output_store

_KEY = "0c6f2c3c-3f06-5f0f-9d6e-6d2a4c1c7c55/sub/ü 1.png"


def _file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "local"
    path.write_bytes(data)
    return path


async def _put(store: ObjectPlace, key: str, file: Path, *, as_it_was: bytes | None = None) -> None:
    data = file.read_bytes() if as_it_was is None else as_it_was
    put = PutFile(name=key, file=file, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    await store.put_file(put, mode="overwrite")


@pytest.mark.parametrize("size", [0, 1, 5_000_000, 17 << 20])
async def test_a_stored_file_is_whole(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path, size: int
) -> None:
    data = random.Random(size).randbytes(size)

    await _put(store, _KEY, _file(tmp_path, data))

    assert await seen.read_bytes(_KEY) == data


async def test_storing_again_changes_nothing_and_other_bytes_replace(
    store: ObjectPlace, seen: ObjectPlace, tmp_path: Path
) -> None:
    for data in (b"first", b"first", b"other"):
        await _put(store, _KEY, _file(tmp_path, data))
        assert await seen.read_bytes(_KEY) == data


async def test_small_bytes_replace_what_was_there(store: ObjectPlace, seen: ObjectPlace) -> None:
    await store.put_all([], ("p.json", b"one"), guard=lambda: None)
    await store.put_all([], ("p.json", b"three"), guard=lambda: None)

    assert await seen.read_bytes("p.json") == b"three"


async def test_a_file_that_shrank_since_it_was_collected_is_refused(
    store: ObjectPlace, tmp_path: Path
) -> None:
    file = _file(tmp_path, b"shrunk")

    with pytest.raises(StoreError):
        await _put(store, _KEY, file, as_it_was=b"as it was")


async def test_a_folder_shows_no_second_copy_and_removes_what_a_crash_left(tmp_path: Path) -> None:
    out = tmp_path / "out"
    left = (out / _KEY).parent / ".partial-1-dead"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")

    await _put(open_output_store(str(out)), _KEY, _file(tmp_path, b"whole"))

    assert [str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()] == [_KEY]


async def test_a_file_that_is_refused_leaves_no_folder_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    store = open_output_store(str(out))

    with pytest.raises(StoreError):
        await _put(store, _KEY, _file(tmp_path, b"other"), as_it_was=b"first")

    assert list(out.rglob("*")) == []


async def test_a_folder_leaves_a_file_alone_that_has_the_same_bytes(tmp_path: Path) -> None:
    store = open_output_store(str(tmp_path / "out"))
    file = _file(tmp_path, b"same")
    await _put(store, _KEY, file)
    inode = (tmp_path / "out" / _KEY).stat().st_ino

    await _put(store, _KEY, file)

    assert (tmp_path / "out" / _KEY).stat().st_ino == inode


async def test_a_folder_refuses_bytes_that_changed_at_equal_length(tmp_path: Path) -> None:
    store = open_output_store(str(tmp_path / "out"))

    with pytest.raises(StoreError, match="no longer the bytes"):
        await _put(store, _KEY, _file(tmp_path, b"data"), as_it_was=b"atad")

    assert not (tmp_path / "out" / _KEY).exists()


async def test_an_output_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").touch()

    with pytest.raises(StoreError, match=str(tmp_path / "out")):
        await _put(open_output_store(str(tmp_path / "out")), _KEY, _file(tmp_path, b"x"))


async def test_outputs_take_the_mode_that_the_user_wants(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        await _put(open_output_store(str(tmp_path / "out")), _KEY, _file(tmp_path, b"x"))
    finally:
        os.umask(mask)

    assert (tmp_path / "out" / _KEY).stat().st_mode & 0o777 == 0o640


def test_the_address_hides_what_is_secret(tmp_path: Path) -> None:
    assert open_output_store("s3://bucket/out?token=5ecret").address == "s3://bucket/out?token=***"
    assert open_output_store(str(tmp_path)).address == str(tmp_path)


@pytest.mark.parametrize("address", ["https://host/out", "HTTP://host", "ftp://host/out"])
def test_places_that_take_no_outputs_are_wrong_usage(address: str) -> None:
    with pytest.raises(UsageError):
        open_output_store(address)
