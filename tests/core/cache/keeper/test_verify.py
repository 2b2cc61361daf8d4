"""Bytes that changed behind our back are found, and taken out of sight."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.verify import verify

Put = Callable[..., Any]
Keep = Callable[..., Keeper]


def spoil(blobs: BlobStore, model: Any) -> None:
    """One bit of another kind, the size as before."""
    path = blobs.path(model.sha256)
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(500)
        file.write(b"\x00")


def test_a_bit_that_changed_is_found_and_the_file_is_quarantined(
    put: Put, keep: Keep, blobs: BlobStore, tmp_path: Path
) -> None:
    good, bad = put("good"), put("bad")
    (soft,) = keep().link([bad], tmp_path / "soft")
    (hard,) = keep().link([bad], tmp_path / "hard", hard=True)
    spoil(blobs, bad)
    read: list[int] = []

    report = verify(keep(), on_bytes=read.append)

    (found,) = report.spoiled
    assert (report.checked, report.checked_bytes, sum(read)) == (2, 2000, 2000)
    assert (found.sha256, found.quarantined) == (bad.sha256, blobs.root / "quarantine" / bad.sha256)
    assert "1000 bytes have the SHA-256" in found.reason
    assert blobs.has(good.sha256)
    assert not blobs.has(bad.sha256)
    assert not os.path.lexists(hard)  # it would go on showing the wrong bytes
    assert soft.is_symlink()  # it leads to the right ones, once they have come anew
    put("bad")
    assert soft.read_bytes() == bad.data
    assert verify(keep()).spoiled == ()


def test_only_what_is_named_is_read_and_what_is_not_here_is_said(
    put: Put, keep: Keep, blobs: BlobStore
) -> None:
    a, b = put("a"), put("b")
    spoil(blobs, b)

    report = verify(keep(), [a.sha256, "f" * 64, a.sha256])

    assert (report.checked, report.spoiled, report.absent) == (1, (), ("f" * 64,))
    assert blobs.has(b.sha256)


def test_a_wrong_file_on_a_read_only_disk_is_told_and_the_rest_is_read(
    put: Put, keep: Keep, blobs: BlobStore, failing: Callable[..., Any]
) -> None:
    bad, worse = put("bad"), put("worse")
    spoil(blobs, bad)
    spoil(blobs, worse)

    report = verify(keep(disk=failing(1, errno.EROFS, stays=True)))

    assert {one.sha256 for one in report.spoiled} == {bad.sha256, worse.sha256}
    assert [one.quarantined for one in report.spoiled] == [None, None]
    assert all("Read-only file system" in one.reason for one in report.spoiled)


def test_a_file_that_was_healed_while_it_was_read_is_left_alone(
    put: Put, keep: Keep, blobs: BlobStore
) -> None:
    bad = put("bad")
    spoil(blobs, bad)

    def heal(_count: int) -> None:
        blobs.path(bad.sha256).unlink()
        put("bad")

    assert verify(keep(), on_bytes=heal).spoiled == ()
    assert blobs.path(bad.sha256).read_bytes() == bad.data
