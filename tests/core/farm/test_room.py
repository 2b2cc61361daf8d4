"""What cannot fit is refused before the first byte comes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.errors import ForeignFile, NoRoom
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.lock.lockfile import LockedModel


def model(size: int, *, sha: str = "a" * 64, path: str = "m.safetensors") -> LockedModel:
    return LockedModel(folder="checkpoints", path=path, sha256=sha, size=size)


def test_models_larger_than_the_disk_are_refused(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free

    with pytest.raises(NoRoom, match="have to be fetched, and the disk of this host has") as caught:
        refuse_what_cannot_fit([model(free * 2)], BlobStore(tmp_path / "cache"))

    assert caught.value.exit_code == 2
    refuse_what_cannot_fit([model(1000)], BlobStore(tmp_path / "cache"))


def test_what_is_here_already_needs_no_room(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path)
    size = shutil.disk_usage(tmp_path).free * 2
    blob = blobs.path("a" * 64)
    blob.parent.mkdir(parents=True)
    with blob.open("wb") as file:
        file.truncate(size)  # a hole: it takes no room

    refuse_what_cannot_fit([model(size), model(size, path="again.safetensors")], blobs)


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
        refuse_what_cannot_fit([model(4)], blobs, tmp_path / "models")
    refuse_what_cannot_fit(
        [model(4, path="n.safetensors")], BlobStore(tmp_path / "cache"), tmp_path / "models"
    )
