"""What verifying finds in a mirror whose files went wrong."""

from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.add import add_file
from comfyfarm.cache.mirrors.entry import meta_key, mirror_key, read_entry, write_entry
from comfyfarm.cache.mirrors.inventory import take_inventory
from comfyfarm.cache.mirrors.verify import Problem, everything, verify
from comfyfarm.cache.places.place import ObjectPlace

_PART = 16 << 20


def _go_on() -> None:
    """Nothing stops it."""


async def _problems(mirror: ObjectPlace, *, deep: bool = False) -> tuple[Problem, ...]:
    return (await verify(mirror, everything(await take_inventory(mirror)), deep=deep)).problems


async def test_what_is_right_is_right_and_every_byte_is_read(mirror: ObjectPlace, file: Path) -> None:
    entry = await add_file(mirror, file)
    told: list[int] = []

    shallow = await verify(mirror, [entry.sha256])
    deep = await verify(mirror, [entry.sha256, entry.sha256], deep=True, on_bytes=told.append)

    assert (shallow.checked, shallow.problems) == (1, ())
    assert (deep.checked, deep.problems, deep.by_size_only) == (1, (), ())
    assert sum(told) == entry.size


async def test_a_bucket_vouches_for_the_bytes_and_a_folder_for_their_number(
    mirror: ObjectPlace, file: Path
) -> None:
    entry = await add_file(mirror, file)
    expected = () if mirror.address.startswith("s3://") else (entry.sha256,)
    assert (await verify(mirror, [entry.sha256])).by_size_only == expected


async def test_the_wrong_parts_are_named_and_adding_mends(
    mirror: ObjectPlace, file: Path, content: bytes
) -> None:
    entry = await add_file(mirror, file)
    wrong = bytearray(content)
    wrong[_PART + 5] ^= 1
    await mirror.put_bytes(mirror_key(entry.sha256), bytes(wrong))

    (problem,) = await _problems(mirror, deep=True)
    assert (problem.code, problem.bad_parts, problem.names) == ("wrong_bytes", (1,), entry.names)
    assert "16-32" in problem.detail

    await add_file(mirror, file)
    assert await _problems(mirror, deep=True) == ()


async def test_the_server_itself_tells_wrong_bytes(bucket: ObjectPlace, file: Path) -> None:
    entry = await add_file(bucket, file)
    await bucket.put_bytes(mirror_key(entry.sha256), bytes(entry.size))

    (problem,) = await _problems(bucket)

    assert (problem.sha256, problem.code, problem.bad_parts) == (entry.sha256, "wrong_bytes", (0, 1, 2))


async def test_another_size_a_missing_file_and_a_missing_entry_are_each_named(
    mirror: ObjectPlace, tmp_path: Path
) -> None:
    shas = []
    for n in range(3):
        (tmp_path / f"{n}.pt").write_bytes(b"weights" * (n + 1))
        shas.append((await add_file(mirror, tmp_path / f"{n}.pt")).sha256)
    await mirror.put_bytes(mirror_key(shas[0]), b"short")
    await mirror.remove([mirror_key(shas[1]), meta_key(shas[2])], guard=_go_on)

    found = {problem.sha256: problem.code for problem in await _problems(mirror)}

    assert found == dict(zip(shas, ["wrong_size", "no_file", "no_entry"], strict=True))
    absent = await verify(mirror, ["ab" * 32])
    assert [problem.code for problem in absent.problems] == ["no_file"]


@pytest.mark.parametrize("deep", [False, True])
async def test_wrong_hashes_of_parts_show_when_the_file_is_read(
    mirror: ObjectPlace, file: Path, deep: bool
) -> None:
    entry = await add_file(mirror, file)
    await write_entry(mirror, entry.model_copy(update={"parts": (*entry.parts[:2], entry.parts[0])}))
    # A bucket's checksum is made of the parts' own, so it shows at once there.
    is_bucket = mirror.address.startswith("s3://")

    codes = [problem.code for problem in await _problems(mirror, deep=deep)]

    assert codes == (["wrong_parts"] if deep or is_bucket else [])
    await add_file(mirror, file)
    assert await read_entry(mirror, entry.sha256) == entry
