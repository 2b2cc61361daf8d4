"""What lies where a file of the cache goes and is none: it hangs nothing, and is taken away."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.stats import read_stats
from comfyfarm.cache.keeper.verify import verify
from comfyfarm.errors import TransferError

Put = Callable[..., Any]
Keep = Callable[..., Keeper]


def replace(path: Path, kind: str) -> None:
    """Something else in its place, of the size that the file had where that can be."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.with_name("elsewhere").write_bytes(b"x" * 1000)
        path.symlink_to(path.with_name("elsewhere"))
    else:
        path.mkdir()
        if kind == "full folder":
            (path / "mine").write_bytes(b"mine")


KINDS = ["pipe", "link", "folder", "full folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_found_by_verify_and_the_others_are_read(
    put: Put, keep: Keep, blobs: BlobStore, kind: str
) -> None:
    good, bad = put("good"), put("bad")
    replace(blobs.path(bad.sha256), kind)
    assert keep().look()[0].blobs.keys() == {good.sha256}

    report = verify(keep())

    (found,) = report.spoiled
    assert (found.sha256, found.reason) == (bad.sha256, "it is no regular file")
    assert (report.checked, report.checked_bytes) == (2, 1000)
    assert not os.path.lexists(blobs.path(bad.sha256))
    assert (found.quarantined is not None) == (kind in {"link", "full folder"})
    assert verify(keep()).spoiled == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_no_file_has_to_come_anew_and_is_in_nobodys_way(
    put: Put, keep: Keep, blobs: BlobStore, kind: str, is_taken: bool
) -> None:
    bad = put("bad")
    if is_taken:
        keep().quarantine(bad.sha256, reason="test")
        put("bad")
    replace(blobs.path(bad.sha256), kind)

    with keep(2000).hold([bad]) as held:
        assert held.missing == (bad.sha256,)
        assert not os.path.lexists(blobs.path(bad.sha256))


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_lease_that_is_no_file_holds_nothing(put: Put, keep: Keep, blobs: BlobStore, kind: str) -> None:
    model = put("a")
    lease = blobs.root / ".leases" / "1-x.lease"
    lease.parent.mkdir()
    lease.touch()
    replace(lease, kind)

    assert read_stats(keep()).in_use_files == 0
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


@pytest.mark.parametrize("name", ["sha256", "sha256/??"])
def test_a_file_where_a_folder_goes_is_named(
    keep: Keep, blobs: BlobStore, blob: Callable[..., Any], name: str
) -> None:
    model = blob("a")
    at = blobs.root / name.replace("??", model.sha256[:2])
    at.parent.mkdir(parents=True)
    at.write_bytes(b"mine")

    with pytest.raises(TransferError, match=f"{at}: is no folder"), keep().hold([model]):
        pytest.fail("held")
    with pytest.raises(TransferError, match=f"{at}: is no folder"):
        keep().check([model])
    with pytest.raises(TransferError, match=f"{at}: is no folder"):
        verify(keep(), [model.sha256])
    assert at.read_bytes() == b"mine"


def test_pins_in_a_pipe_are_not_waited_for(put: Put, keep: Keep, blobs: BlobStore) -> None:
    model = put("a")
    os.mkfifo(blobs.root / "pins.json")

    assert keep().evict([model.sha256]).evicted == ()
