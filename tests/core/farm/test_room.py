"""What cannot fit is refused before the first byte comes."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.errors import ForeignFile, NoRoom
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.lock.lockfile import LockedModel

BOUNDS = Bounds(None, 1 << 30)


def model(size: int, *, sha: str = "a" * 64, path: str = "m.safetensors") -> LockedModel:
    return LockedModel(folder="checkpoints", path=path, sha256=sha, size=size)


def test_models_larger_than_the_disk_are_refused(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free

    with pytest.raises(NoRoom, match="have to be fetched, and the disk of this host has") as caught:
        refuse_what_cannot_fit([model(free * 2)], Keeper(BlobStore(tmp_path / "cache"), BOUNDS))

    assert caught.value.exit_code == 2
    refuse_what_cannot_fit([model(1000)], Keeper(BlobStore(tmp_path / "cache"), BOUNDS))


def test_what_is_here_already_needs_no_room(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    size = shutil.disk_usage(tmp_path).free * 2
    blob = blobs.path("a" * 64)
    blob.parent.mkdir(parents=True)
    with blob.open("wb") as file:
        file.truncate(size)  # a hole: it takes no room

    refuse_what_cannot_fit([model(size), model(size, path="again.safetensors")], Keeper(blobs, BOUNDS))


def cached(blobs: BlobStore, sha: str, *, used: float) -> LockedModel:
    """A file of 1000 bytes in the cache, whatever it holds."""
    path = blobs.path(sha)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 1000)
    os.utime(path, (used, used))
    return model(1000, sha=sha, path=f"{sha[:2]}.safetensors")


def test_what_may_leave_the_cache_is_room_and_stays_until_it_has_to(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    old = cached(blobs, "b" * 64, used=1)

    refuse_what_cannot_fit([model(1500)], Keeper(blobs, Bounds(2000, 0)))

    assert blobs.has(old.sha256)


def test_what_is_pinned_or_in_use_is_no_room_and_is_named(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    pinned, used = cached(blobs, "b" * 64, used=1), cached(blobs, "c" * 64, used=2)
    keeper = Keeper(blobs, Bounds(3000, 0))
    keeper.pin({pinned.sha256: pinned.title}, who="lock 12", why="film.lock")
    with keeper.hold([used], who="batch film"):
        with pytest.raises(NoRoom) as caught:
            refuse_what_cannot_fit([model(1500)], Keeper(blobs, Bounds(3000, 0)))
        refuse_what_cannot_fit([model(1000)], Keeper(blobs, Bounds(3000, 0)))

    assert caught.value.exit_code == 2
    for words in (
        "quota: 2.9 KiB",
        "checkpoints/bb.safetensors (1000 bytes): by lock 12 (film.lock)",
        "checkpoints/cc.safetensors (1000 bytes): batch film",
        "comfyfarm cache unpin",
    ):
        assert words in str(caught.value)
    refuse_what_cannot_fit([model(1500)], Keeper(blobs, Bounds(3000, 0)))


def test_what_is_to_stay_free_of_the_disk_is_no_room(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free

    with pytest.raises(NoRoom, match="to stay free on the disk"):
        refuse_what_cannot_fit([model(1000)], Keeper(BlobStore(tmp_path), Bounds(None, 2 * free)))


def test_a_disk_that_is_nearly_full_afterwards_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = shutil.disk_usage(tmp_path).free - (1 << 29)

    refuse_what_cannot_fit([model(size)], Keeper(BlobStore(tmp_path), Bounds(None, 0)))

    assert "of disk left" in caplog.text


async def test_a_render_is_refused_before_anything_is_fetched(project: Any, serving: Any) -> None:
    served = serving()
    size = shutil.disk_usage(project.root).free * 2
    graph = {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "m.pth"}},
        "2": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]},
        },
        "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "p"}},
    }
    locked = {"folder": "upscale_models", "path": "m.pth", "sha256": "b" * 64, "size": size,
              "sources": [str(project.root / "m.pth")]}  # fmt: skip
    request = project.request(
        project.write("w.json", graph),
        lock={"version": 1, "models": [locked]},
        models_dir=project.root / "models",
        cache_dir=project.root / "cache",
    )

    with pytest.raises(NoRoom):
        await project.render(request)

    assert served.prompts == []
    assert not (project.root / "cache" / ".partial").exists()


def test_files_that_are_not_ours_are_named_before_anything_is_fetched(tmp_path: Path) -> None:
    file = tmp_path / "models" / "checkpoints" / "m.safetensors"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"mine")
    blobs = BlobStore(tmp_path / "cache")

    with pytest.raises(ForeignFile, match=r"m\.safetensors"):
        refuse_what_cannot_fit([model(4)], Keeper(blobs, BOUNDS), tmp_path / "models")
    refuse_what_cannot_fit([model(4, path="n.safetensors")], Keeper(blobs, BOUNDS), tmp_path / "models")
