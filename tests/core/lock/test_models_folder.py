"""A models folder as a catalogue."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.models_folder import catalogue_from_dir

LONG_AGO = 1_700_000_000


def put(root: Path, name: str, content: bytes = b"model", mtime: int = LONG_AGO) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (mtime, mtime))
    return path


def test_every_model_is_listed_with_its_content(tmp_path: Path) -> None:
    put(tmp_path, "checkpoints/a.safetensors", b"one")
    put(tmp_path, "loras/Sub/新 b.pt", b"two!")
    put(tmp_path, "diffusers/sd15/unet/config.json", b"{}")

    found = catalogue_from_dir(tmp_path)

    assert [(e.folder, e.path, e.size) for e in found.entries] == [
        ("checkpoints", "a.safetensors", 3),
        ("diffusers", "sd15/unet/config.json", 2),
        ("loras", "Sub/新 b.pt", 4),
    ]
    assert found.entries[0].sha256 == hashlib.sha256(b"one").hexdigest()
    assert found.entries[0].sources == (str(tmp_path / "checkpoints" / "a.safetensors"),)


def test_comfyuis_own_folder_means_the_models_in_it(tmp_path: Path) -> None:
    put(tmp_path, "folder_paths.py")
    put(tmp_path, "input/picture.png")
    put(tmp_path, "models/vae/a.pt")

    assert [(e.folder, e.path) for e in catalogue_from_dir(tmp_path).entries] == [("vae", "a.pt")]


def test_what_is_no_model_is_passed_over(tmp_path: Path) -> None:
    for name in (
        "top.safetensors",
        "vae/put_vae_here",
        "vae/.hidden",
        "vae/a.safetensors.part",
        ".git/config",
    ):
        put(tmp_path, name)
    (tmp_path / "loras").mkdir()

    assert catalogue_from_dir(tmp_path).entries == ()


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    real = put(tmp_path, "elsewhere/real.safetensors")
    models = tmp_path / "models"
    (models / "loras").mkdir(parents=True)
    (models / "loras" / "link.safetensors").symlink_to(real)
    (models / "loras" / "broken.safetensors").symlink_to(tmp_path / "gone")
    (models / "loras" / "round").symlink_to(models / "loras")

    assert [entry.path for entry in catalogue_from_dir(models).entries] == ["link.safetensors"]


def test_a_link_to_a_folder_beside_it_has_names_of_its_own(tmp_path: Path) -> None:
    put(tmp_path, "loras/one/a.pt")
    (tmp_path / "loras" / "two").symlink_to(tmp_path / "loras" / "one")

    assert [entry.path for entry in catalogue_from_dir(tmp_path).entries] == ["one/a.pt", "two/a.pt"]


def test_of_one_name_in_two_folders_the_first_counts_as_for_comfyui(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in ("clip", "text_encoders", "diffusion_models", "unet"):
        put(tmp_path, f"{folder}/x.pt", folder.encode())
    found = catalogue_from_dir(tmp_path)

    assert [entry.folder for entry in found.entries] == ["unet", "text_encoders"]
    assert "clip/x.pt is hidden from ComfyUI by" in caplog.text


def test_only_what_is_wanted_is_hashed_and_the_rest_is_known_by_name(tmp_path: Path) -> None:
    wanted, other = put(tmp_path, "unet/a.pt"), put(tmp_path, "unet/b.pt", b"other")
    seen: list[str] = []
    found = catalogue_from_dir(
        tmp_path,
        progress=lambda file, _done, _total: seen.append(file),
        wants=lambda folder, path: (folder, path) == ("unet", "a.pt"),
    )

    assert [entry.path for entry in found.entries] == ["a.pt"]
    assert found.others == ("diffusion_models/b.pt",)
    assert seen == [str(wanted)]
    assert str(other) not in seen


def test_a_folder_that_cannot_be_read_is_an_error_and_not_empty() -> None:
    with as_plain_user(), tempfile.TemporaryDirectory() as name:
        models = Path(name)
        locked = put(models, "loras/sub/a.pt").parent
        catalogue_from_dir(models)
        locked.chmod(0)
        try:
            with pytest.raises(CatalogueError, match="cannot be read"):
                catalogue_from_dir(models)
        finally:
            locked.chmod(0o755)


@contextmanager
def as_plain_user() -> Iterator[None]:
    """Root may read everything: such a test is another user's."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(was)


def test_a_file_is_hashed_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    models, state = tmp_path / "models", tmp_path / "state"
    path = put(models, "vae/a.safetensors", b"old")
    first = catalogue_from_dir(models, state_dir=state)

    # Same inode, size and time: the bytes are not looked at, which is how this can be seen.
    with path.open("r+b") as file:
        file.write(b"new")
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert catalogue_from_dir(models, state_dir=state) == first

    os.utime(path, (LONG_AGO + 60, LONG_AGO + 60))
    again = catalogue_from_dir(models, state_dir=state)
    assert again.entries[0].sha256 == hashlib.sha256(b"new").hexdigest()


def test_a_file_of_this_moment_is_not_remembered(tmp_path: Path) -> None:
    models, state = tmp_path / "models", tmp_path / "state"
    path = put(models, "vae/a.safetensors", b"old")
    os.utime(path)
    stat = path.stat()
    catalogue_from_dir(models, state_dir=state)

    with path.open("r+b") as file:
        file.write(b"new")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    found = catalogue_from_dir(models, state_dir=state)
    assert found.entries[0].sha256 == hashlib.sha256(b"new").hexdigest()


def test_damaged_hashes_are_made_again(tmp_path: Path) -> None:
    models, state = tmp_path / "models", tmp_path / "state"
    put(models, "vae/a.safetensors", b"x")
    first = catalogue_from_dir(models, state_dir=state)
    (kept,) = state.iterdir()
    kept.write_text('{"half')

    assert catalogue_from_dir(models, state_dir=state) == first
    assert [path.name for path in state.iterdir()] == [kept.name]


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    put(tmp_path, "vae/a", b"12345")
    put(tmp_path, "vae/b", b"678")
    seen: list[tuple[str, int, int]] = []

    catalogue_from_dir(tmp_path, progress=lambda *step: seen.append(step))

    assert seen == [(str(tmp_path / "vae/a"), 5, 8), (str(tmp_path / "vae/b"), 8, 8)]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="there is no such folder"):
        catalogue_from_dir(tmp_path / "gone")


def test_a_name_that_no_lock_can_hold_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "vae/a:b.safetensors")

    with pytest.raises(CatalogueError, match="character that no path may have"):
        catalogue_from_dir(tmp_path)
