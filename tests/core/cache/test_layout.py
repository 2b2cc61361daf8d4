"""Links where ComfyUI looks, and nothing of anyone else's touched."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.layout import (
    extra_model_paths_yaml,
    is_link_to,
    link_models,
    make_view,
    refuse_foreign,
    refuse_hard_links,
    waiting_name,
    write_extra_model_paths,
)
from comfyfarm.cache.pinned import Placed
from comfyfarm.errors import ForeignFile, InputError, UsageError

if TYPE_CHECKING:
    from tests.core.cache.conftest import Model


def _put(blobs: BlobStore, sha256: str, data: bytes) -> None:
    path = blobs.path(sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _cached(blobs: BlobStore, model: "Model", data: bytes, folder: str, path: str) -> "Model":
    sha256 = data.hex().ljust(64, "0")
    _put(blobs, sha256, data)
    return dataclasses.replace(model, sha256=sha256, size=len(data), folder=folder, path=path)


@pytest.fixture
def models(blobs: BlobStore, model: "Model") -> list["Model"]:
    """A checkpoint in a folder of its own and a LoRA."""
    return [
        _cached(blobs, model, b"ckpt", "checkpoints", "sd/é 1.safetensors"),
        _cached(blobs, model, b"lora", "loras", "l.safetensors"),
    ]


@pytest.mark.parametrize("hard", [False, True])
def test_models_are_read_under_their_names_and_linking_again_changes_nothing(
    models: list["Model"], blobs: BlobStore, tmp_path: Path, hard: bool
) -> None:
    root = tmp_path / "models"
    links = link_models(models, blobs, root, hard=hard)
    inodes = [link.lstat().st_ino for link in links]

    again = link_models(models, blobs, root, hard=hard)

    assert links == again == (root / "checkpoints/sd/é 1.safetensors", root / "loras/l.safetensors")
    assert [link.read_bytes() for link in links] == [b"ckpt", b"lora"]
    assert [link.is_symlink() for link in links] == [not hard] * 2
    assert [link.lstat().st_ino for link in links] == inodes
    assert sorted(path.name for path in root.rglob("*") if not path.is_dir()) == sorted(
        link.name for link in links
    )


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_link_of_ours_moves_on_to_other_content(
    models: list["Model"], model: "Model", blobs: BlobStore, tmp_path: Path, before: bool, after: bool
) -> None:
    link_models(models, blobs, tmp_path / "models", hard=before)
    newer = _cached(blobs, model, b"newer", models[0].folder, models[0].path)

    (link,) = link_models([newer], blobs, tmp_path / "models", hard=after)

    assert link.read_bytes() == b"newer"
    assert blobs.path(models[0].sha256).read_bytes() == b"ckpt"


def test_a_dangling_link_of_ours_is_ours(
    models: list["Model"], model: "Model", blobs: BlobStore, tmp_path: Path
) -> None:
    (link, _) = link_models(models, blobs, tmp_path / "models")
    blobs.path(models[0].sha256).unlink()
    newer = _cached(blobs, model, b"newer", models[0].folder, models[0].path)

    link_models([newer], blobs, tmp_path / "models")

    assert link.read_bytes() == b"newer"


def test_all_foreign_files_are_named_and_nothing_is_linked(
    models: list["Model"], model: "Model", blobs: BlobStore, tmp_path: Path
) -> None:
    root = tmp_path / "models"
    (root / "loras").mkdir(parents=True)
    (root / "loras/l.safetensors").write_bytes(b"mine")
    (root / "vae/v.pt").mkdir(parents=True)
    (root / "clip").write_bytes(b"a file where a folder goes")
    (root / "unet").mkdir()
    (root / "unet/u.gguf").symlink_to(tmp_path / "elsewhere")
    others = [
        _cached(blobs, model, b"vae", "vae", "v.pt"),
        _cached(blobs, model, b"clip", "clip", "c.pt"),
        _cached(blobs, model, b"unet", "unet", "u.gguf"),
    ]

    with pytest.raises(ForeignFile) as caught:
        link_models([*models, *others], blobs, root)

    assert str(caught.value).splitlines()[1:] == [
        f"  {root / name}" for name in ("loras/l.safetensors", "vae/v.pt", "clip/c.pt", "unet/u.gguf")
    ]
    assert (root / "loras/l.safetensors").read_bytes() == b"mine"
    assert not (root / "checkpoints").exists()


def test_a_folder_that_the_user_linked_elsewhere_is_followed(
    models: list["Model"], blobs: BlobStore, tmp_path: Path
) -> None:
    (tmp_path / "big disk").mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "models/loras").symlink_to(tmp_path / "big disk")

    link_models(models, blobs, tmp_path / "models")

    assert (tmp_path / "big disk/l.safetensors").read_bytes() == b"lora"


@pytest.mark.parametrize("path", ["../x.pt", "/x.pt", "a/../../x.pt", "", "a\\..\\x.pt"])
def test_a_path_that_leads_out_of_the_folder_is_refused(
    model: "Model", blobs: BlobStore, tmp_path: Path, path: str
) -> None:
    with pytest.raises(InputError, match="leads out"):
        link_models([dataclasses.replace(model, path=path)], blobs, tmp_path / "models")


def test_two_contents_of_one_path_are_refused(
    models: list["Model"], model: "Model", blobs: BlobStore, tmp_path: Path
) -> None:
    other = _cached(blobs, model, b"other", models[0].folder, models[0].path)

    with pytest.raises(InputError, match="two files of different content"):
        link_models([models[0], other], blobs, tmp_path / "models")


def test_a_view_shows_the_locks_models_to_comfyui(models: list["Model"], blobs: BlobStore) -> None:
    view = make_view("d1gest", models, blobs)

    assert view == blobs.root / "views" / "d1gest"
    assert (view / "checkpoints/sd/é 1.safetensors").read_bytes() == b"ckpt"
    assert yaml.safe_load(extra_model_paths_yaml(view)) == {
        "comfyfarm": {
            "base_path": str(view),
            "is_default": True,
            "checkpoints": "checkpoints",
            "loras": "loras",
        }
    }


def test_what_will_be_linked_is_told_before_anything_is(
    models: list["Model"], blobs: BlobStore, tmp_path: Path
) -> None:
    told: list[dict[Path, Placed]] = []

    def on_links(links: Mapping[Path, Placed]) -> None:
        assert not any(os.path.lexists(link) for link in links)
        told.append(dict(links))

    links = link_models(models, blobs, tmp_path / "models", on_links=on_links)

    assert [tuple(one) for one in told] == [links]
    assert [model.sha256 for model in told[0].values()] == [model.sha256 for model in models]


@pytest.mark.parametrize("hard", [False, True])
def test_the_rest_of_a_killed_process_is_in_nobodys_way(
    models: list["Model"], blobs: BlobStore, tmp_path: Path, hard: bool
) -> None:
    link = tmp_path / "models" / "loras" / "l.safetensors"
    link.parent.mkdir(parents=True)
    waiting_name(link).symlink_to(tmp_path / "nowhere")

    link_models(models, blobs, tmp_path / "models", hard=hard)

    assert link.read_bytes() == b"lora"
    assert [path.name for path in link.parent.iterdir()] == ["l.safetensors"]


def test_a_link_of_ours_is_told_from_others(models: list["Model"], blobs: BlobStore, tmp_path: Path) -> None:
    blob, other = (blobs.path(model.sha256) for model in models)
    soft, hard, copy, strange = (tmp_path / name for name in ("soft", "hard", "copy", "strange"))
    soft.symlink_to(blob)
    hard.hardlink_to(blob)
    copy.write_bytes(blob.read_bytes())
    strange.symlink_to(soft)

    assert [is_link_to(path, blob) for path in (soft, hard, copy, strange)] == [True, True, False, False]
    assert not any(is_link_to(path, other) for path in (soft, hard, copy, strange, tmp_path / "none"))
    (tmp_path / "same").symlink_to(blobs.root)
    through = BlobStore(tmp_path / "same").path(models[0].sha256)
    assert is_link_to(soft, through)
    blob.unlink()
    assert is_link_to(soft, blob)


def test_a_hard_link_to_what_is_quarantined_by_now_is_still_ours(
    models: list["Model"], blobs: BlobStore, tmp_path: Path
) -> None:
    (_, link) = link_models(models, blobs, tmp_path / "models", hard=True)
    blobs.quarantine(models[1].sha256, reason="test")
    _put(blobs, models[1].sha256, b"LORA")

    link_models(models, blobs, tmp_path / "models", hard=True)

    assert link.read_bytes() == b"LORA"


def test_a_name_that_is_too_long_is_named(models: list["Model"], blobs: BlobStore, tmp_path: Path) -> None:
    long = dataclasses.replace(models[0], path="m" * 256)

    with pytest.raises(InputError, match=r"m{256}: is longer"):
        refuse_foreign([long], blobs, tmp_path / "models")
    (tmp_path / "checkpoints").mkdir()
    deep = dataclasses.replace(models[0], path="/".join(["m" * 250] * 20))
    with pytest.raises(InputError, match=r"checkpoints/m{250}/.*: is longer"):
        refuse_foreign([deep], blobs, tmp_path)


def test_hard_links_to_another_file_system_are_refused_beforehand(
    models: list["Model"], blobs: BlobStore, tmp_path: Path
) -> None:
    refuse_hard_links(models, blobs, tmp_path / "models")
    memory = Path("/dev/shm")  # noqa: S108 - the one other file system that is likely to be there
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is but one file system")

    with pytest.raises(UsageError, match="another file system") as caught:
        refuse_hard_links(models, blobs, memory / "no" / "models")
    assert "--link hard" in str(caught.value)


def test_paths_that_need_a_file_and_a_folder_of_one_name_are_refused(
    models: list["Model"], blobs: BlobStore, tmp_path: Path
) -> None:
    above = dataclasses.replace(models[0], path="x")
    below = dataclasses.replace(models[1], folder="checkpoints", path="x/deep/y.pt")

    for many in ([above, below], [below, above]):
        with pytest.raises(InputError, match=r"checkpoints/x: is a file, and checkpoints/x/deep/y\.pt needs"):
            refuse_foreign(many, blobs, tmp_path / "models")


def test_what_a_dead_writer_of_a_config_left_is_swept_later(models: list["Model"], blobs: BlobStore) -> None:
    view = make_view("d1gest", models, blobs)
    old, fresh = (view.with_name(f".{name}.yaml.1") for name in ("old", "fresh"))
    for left in (old, fresh):
        left.touch()
    os.utime(old, (0, 0))

    config = write_extra_model_paths(view, blobs.disk)

    assert sorted(path.name for path in view.parent.iterdir()) == [fresh.name, "d1gest", config.name]
