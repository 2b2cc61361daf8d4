"""What the keeper of a mirror asks of its place: what there is, and what the server says of it."""

import asyncio
import hashlib
from pathlib import Path

import pytest

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.objects import ObjectPlace, S3Access, open_place
from comfyfarm.cache.places.place import PutFile
from comfyfarm.errors import StoreError
from infra.s3_server import S3Server


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectPlace:
    """A place that takes files, of each kind."""
    if request.param == "folder":
        return open_place(str(tmp_path / "place"))
    s3: S3Server = request.getfixturevalue("s3")
    access: S3Access = request.getfixturevalue("access")
    return open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access)


async def test_files_are_listed_with_size_and_time(place: ObjectPlace) -> None:
    assert [one async for one in place.list()] == []
    for name in ("a", "sub/ü b", "sub/deep/c", "subway"):
        await place.put_bytes(name, name.encode())

    found = {one.name: one async for one in place.list()}
    below = {one.name async for one in place.list("sub/")}

    assert sorted(found) == ["a", "sub/deep/c", "sub/ü b", "subway"]
    assert found["sub/ü b"].size == len("sub/ü b".encode())
    assert found["a"].modified.tzinfo is not None
    assert below == {"sub/deep/c", "sub/ü b"}


async def test_a_server_that_knows_the_hash_says_whether_it_is_the_file(place: ObjectPlace) -> None:
    sha256 = hashlib.sha256(b"data").hexdigest()
    await place.put_bytes("k", b"data")
    knows = not isinstance(place, FolderPlace)

    assert await place.holds("k", sha256=sha256, size=4) is (True if knows else None)
    assert await place.holds("k", sha256="0" * 64, size=4) is (False if knows else None)
    assert await place.holds("k", sha256=sha256, size=5) is False
    assert await place.holds("absent", sha256=sha256, size=4) is False


async def test_a_web_server_lists_nothing() -> None:
    with pytest.raises(StoreError, match="does not list"):
        _ = [one async for one in open_place("http://127.0.0.1:9/x").list()]


async def test_a_temporary_file_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".partial-1-dead").touch()

    assert [one async for one in open_place(str(tmp_path)).list()] == []


async def test_two_copies_of_one_file_at_once_are_one(tmp_path: Path, content: bytes) -> None:
    put = _put(tmp_path, content)
    root = tmp_path / "place"

    await asyncio.gather(*(open_place(str(root)).put_file(put, mode="create") for _ in range(4)))

    assert [path.name for path in root.iterdir()] == ["k"]
    assert (root / "k").read_bytes() == content


class _Lying(Disk):
    """Writes other bytes than it was given."""

    def step(self, what: str, path: Path) -> None:
        if what == "sync" and path.stat().st_size:
            path.write_bytes(path.read_bytes()[:-1] + b"?")


async def test_a_copy_that_is_not_the_file_is_not_published(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "place", disk=_Lying())

    with pytest.raises(StoreError, match="other bytes"):
        await place.put_file(_put(tmp_path, b"data"), mode="create")

    assert not (tmp_path / "place" / "k").exists()


def _put(tmp_path: Path, data: bytes) -> PutFile:
    file = tmp_path / "file"
    file.write_bytes(data)
    return PutFile(name="k", file=file, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
