"""What a mirror holds of a file once it was added, whatever was there before."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from botocore.session import Session

from comfyfarm.cache.mirrors.add import FileFacts, add_file, is_mirrored
from comfyfarm.cache.mirrors.entry import meta_key, mirror_key, read_entry
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.errors import CorruptBytes, InputError
from infra.s3_server import S3Server


async def test_a_mirrored_file_lies_beside_what_is_known_of_it(
    mirror: ObjectPlace, file: Path, content: bytes
) -> None:
    await add_file(mirror, file, FileFacts(("b.safetensors",), "checkpoints", licence="MIT"))
    entry = await add_file(mirror, file, FileFacts(("a.safetensors",), source="https://host/model"))

    sha256 = hashlib.sha256(content).hexdigest()
    assert await mirror.read_bytes(mirror_key(sha256)) == content
    assert await read_entry(mirror, sha256) == entry
    assert json.loads(await mirror.read_bytes(meta_key(sha256)) or b"") == {
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


async def test_each_byte_is_told_twice_when_it_is_hashed_and_when_it_is_there(
    mirror: ObjectPlace, file: Path, content: bytes
) -> None:
    first: list[int] = []
    again: list[int] = []

    entry = await add_file(mirror, file, on_bytes=first.append)
    await add_file(mirror, file, on_bytes=again.append)

    assert await mirror.read_bytes(mirror_key(entry.sha256)) == content
    assert sum(first) == sum(again) == 2 * len(content)
    assert max(first) <= 8 << 20, "told in steps, not at the end"


@pytest.mark.parametrize("wrong", ["same size", "shorter"])
@pytest.mark.parametrize("large", [False, True])
async def test_a_wrong_file_under_the_name_is_replaced(
    mirror: ObjectPlace, file: Path, content: bytes, wrong: str, large: bool
) -> None:
    right = content if large else content[:1000]
    file.write_bytes(right)
    name = mirror_key(hashlib.sha256(right).hexdigest())
    await mirror.put_bytes(name, right[:-1] + (b"!" if wrong == "same size" else b""))

    entry = await add_file(mirror, file)

    assert entry.sha256 == hashlib.sha256(right).hexdigest()
    assert await mirror.read_bytes(name) == right


async def test_a_wrong_file_that_its_uploader_vouched_for_is_replaced(
    s3: S3Server, bucket: ObjectPlace, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    client = Session().create_client(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
        region_name=s3.region,
    )
    key = f"{tmp_path.name}/{mirror_key(sha256)}"
    client.put_object(Bucket=s3.bucket, Key=key, Body=b"WEIGHTS", Metadata={"sha256": sha256})
    client.close()

    await add_file(bucket, tmp_path / "model.pt")

    assert await bucket.read_bytes(mirror_key(sha256)) == b"weights"


async def test_a_wrong_file_that_the_server_vouches_for_is_replaced_when_it_is_read(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    name = mirror_key(hashlib.sha256(b"weights").hexdigest())
    await mirror.put_bytes(name, b"WEIGHTS")

    async def vouches(name: str, *, sha256: str, size: int, part_sha256: tuple[str, ...] = ()) -> bool | None:
        return True

    # Patched because no server can be made to keep a checksum over bytes that rot.
    mirror.holds = vouches  # type: ignore[method-assign]
    await add_file(mirror, tmp_path / "model.pt")
    assert await mirror.read_bytes(name) == b"WEIGHTS"
    await add_file(mirror, tmp_path / "model.pt", deep=True)

    assert await mirror.read_bytes(name) == b"weights"


async def test_a_file_that_a_clean_up_takes_away_meanwhile_is_put_again(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    entry = await add_file(mirror, tmp_path / "model.pt")
    put_bytes = mirror.put_bytes

    async def after_a_clean_up(name: str, data: bytes) -> None:
        await mirror.remove([mirror_key(entry.sha256)], guard=lambda: None)
        await put_bytes(name, data)

    mirror.put_bytes = after_a_clean_up  # type: ignore[method-assign]
    await add_file(mirror, tmp_path / "model.pt")

    assert await mirror.read_bytes(mirror_key(entry.sha256)) == b"weights"


async def test_two_who_add_one_file_at_once_both_succeed_and_there_is_one(
    mirror: ObjectPlace, file: Path, content: bytes
) -> None:
    entries = await asyncio.gather(
        add_file(mirror, file, FileFacts(("one",))), add_file(mirror, file, FileFacts(("two",)))
    )

    assert {entry.sha256 for entry in entries} == {hashlib.sha256(content).hexdigest()}
    assert await mirror.read_bytes(mirror_key(entries[0].sha256)) == content
    assert [listed.size async for listed in mirror.list("sha256/")] == [len(content)]
    found = await read_entry(mirror, entries[0].sha256)
    assert found is not None
    assert set(found.names) & {"one", "two"}


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


async def test_a_file_that_is_not_what_it_must_be_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    with pytest.raises(CorruptBytes, match="was expected"):
        await add_file(open_place(str(tmp_path / "mirror")), tmp_path / "model.pt", sha256="ab" * 32)
    assert not (tmp_path / "mirror").exists()


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("https://user:secret@host/model", "https://host/model"),
        ("https://host/model?version=2&token=secret", "https://host/model?version=2"),
        ("https://host/m?X-Amz-Signature=secret&X-Amz-Date=1", "https://host/m"),
        ("https://host/model", "https://host/model"),
        ("/library/model", "/library/model"),
    ],
)
async def test_no_secret_of_a_source_is_kept(source: str, kept: str, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")
    place = open_place(str(tmp_path / "mirror"))
    entry = await add_file(place, tmp_path / "model.pt", FileFacts(source=source))
    assert entry.source == kept
    assert b"secret" not in (await place.read_bytes(meta_key(entry.sha256)) or b"")


async def test_a_mirrored_file_gets_the_names_of_whoever_asks_for_it(
    mirror: ObjectPlace, file: Path, content: bytes
) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    assert not await is_mirrored(mirror, sha256, len(content), FileFacts(("x",)))
    await add_file(mirror, file, FileFacts(licence="MIT"))

    assert await is_mirrored(mirror, sha256, len(content), FileFacts(("sub/x",), "loras"))

    entry = await read_entry(mirror, sha256)
    assert entry is not None
    assert (entry.names, entry.folder, entry.licence) == (("model.safetensors", "sub/x"), "loras", "MIT")


async def test_a_wrong_copy_that_the_server_knows_of_is_not_mirrored(bucket: ObjectPlace, file: Path) -> None:
    entry = await add_file(bucket, file)
    await bucket.put_bytes(mirror_key(entry.sha256), bytes(entry.size))

    assert not await is_mirrored(bucket, entry.sha256, entry.size, FileFacts())


class _Cleaned(FolderPlace):
    """A mirror whose clean-up takes a file while it is being described again."""

    async def put_bytes(self, name: str, data: bytes) -> None:
        await super().put_bytes(name, data)
        await self.remove([mirror_key(name[len("meta/") : -len(".json")])], guard=lambda: None)


async def test_a_file_that_a_clean_up_takes_just_then_is_not_said_to_be_there(
    tmp_path: Path, file: Path
) -> None:
    root = tmp_path / "mirror"
    entry = await add_file(FolderPlace(root), file)

    assert await is_mirrored(FolderPlace(root), entry.sha256, entry.size, FileFacts())
    assert not await is_mirrored(_Cleaned(root), entry.sha256, entry.size, FileFacts())
