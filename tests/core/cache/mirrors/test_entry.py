"""What lies in a mirror, and under which keys."""

from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.entry import (
    MirrorEntry,
    meta_key,
    mirror_source,
    read_entry,
    write_entry,
)
from comfyfarm.cache.places.objects import open_place

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


async def test_an_entry_that_is_torn_or_of_another_file_is_none(tmp_path: Path) -> None:
    place = open_place(str(tmp_path))
    entry = MirrorEntry(
        sha256=_SHA, size=1, names=("a",), folder=None, source=None, licence=None, parts=(_SHA,)
    )
    await write_entry(place, entry)
    other = "cd" * 32
    await place.put_bytes(meta_key(other), (tmp_path / meta_key(_SHA)).read_bytes())

    assert await read_entry(place, _SHA) == entry
    assert await read_entry(place, other) is None
    await place.put_bytes(meta_key(_SHA), b"{")
    assert await read_entry(place, _SHA) is None
    assert await read_entry(place, "ef" * 32) is None
