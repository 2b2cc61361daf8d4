"""What a mirror holds of a file, and where."""

import hashlib
import json
from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.add import add_file, meta_key, mirror_key, mirror_source, read_entry
from comfyfarm.cache.places.objects import S3Access, open_place
from comfyfarm.errors import InputError
from infra.s3_server import S3Server

_SHA = "ab" * 32


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("/mnt/mirror", f"/mnt/mirror/sha256/ab/{_SHA}"),
        ("s3://bucket", f"s3://bucket/sha256/ab/{_SHA}"),
        ("s3://bucket/a?b#c/", f"s3://bucket/a?b#c/sha256/ab/{_SHA}"),
        ("https://host/dir/?token=1", f"https://host/dir/sha256/ab/{_SHA}?token=1"),
    ],
)
def test_a_file_of_a_mirror_has_an_address_of_its_own(address: str, source: str) -> None:
    assert mirror_source(address, _SHA) == source


@pytest.mark.parametrize("kind", ["folder", "bucket"])
async def test_a_mirrored_file_lies_beside_what_is_known_of_it(
    kind: str, s3: S3Server, access: S3Access, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    place = (
        open_place(str(tmp_path / "mirror"))
        if kind == "folder"
        else open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access)
    )

    await add_file(place, file, names=("b.safetensors",), folder="checkpoints", licence="MIT")
    entry = await add_file(place, file, names=("a.safetensors",), source="https://host/model")

    sha256 = hashlib.sha256(content).hexdigest()
    assert await place.read_bytes(mirror_key(sha256)) == content
    assert await read_entry(place, sha256) == entry
    assert json.loads(await place.read_bytes(meta_key(sha256)) or b"") == {
        "sha256": sha256,
        "size": len(content),
        "names": ["a.safetensors", "b.safetensors"],
        "folder": "checkpoints",
        "source": "https://host/model",
        "licence": "MIT",
        "parts": [hashlib.sha256(content[at : at + (16 << 20)]).hexdigest() for at in (0, 1 << 24, 2 << 24)],
    }


async def test_a_file_that_is_mirrored_is_not_sent_again(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    place = open_place(str(tmp_path / "mirror"))
    entry = await add_file(place, file)
    blob = tmp_path / "mirror" / mirror_key(entry.sha256)
    before = blob.stat()

    again = await add_file(place, file)

    assert again == entry
    assert entry.names == ("model.pt",)
    assert (blob.stat().st_ino, blob.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not list((tmp_path / "mirror").rglob(".partial*"))


@pytest.mark.parametrize("kind", ["folder", "bucket"])
async def test_each_byte_is_told_twice_when_it_is_hashed_and_when_it_is_there(
    kind: str, s3: S3Server, access: S3Access, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    place = (
        open_place(str(tmp_path / "mirror"))
        if kind == "folder"
        else open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access)
    )
    first: list[int] = []
    again: list[int] = []

    entry = await add_file(place, file, on_bytes=first.append)
    await add_file(place, file, on_bytes=again.append)

    assert await place.read_bytes(mirror_key(entry.sha256)) == content
    assert sum(first) == sum(again) == 2 * len(content)
    assert max(first) <= 8 << 20, "told in steps, not at the end"


async def test_a_torn_entry_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    place = open_place(str(tmp_path / "mirror"))
    entry = await add_file(place, file)
    await place.put_bytes(meta_key(entry.sha256), b"{")

    assert await add_file(place, file) == entry == await read_entry(place, entry.sha256)


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.pt: cannot be read"):
        await add_file(open_place(str(tmp_path)), tmp_path / "absent.pt")
