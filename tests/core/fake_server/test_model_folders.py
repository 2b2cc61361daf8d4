"""Model folders: what counts, in which order, and from which places."""

from pathlib import Path

from fake_server.comfy.folders import ModelFolders


def _touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_names_are_relative_sorted_and_only_of_weights(tmp_path: Path) -> None:
    _touch(
        tmp_path / "loras" / "b.safetensors",
        tmp_path / "loras" / "a" / "c.pt",
        tmp_path / "loras" / "note.txt",
    )

    assert ModelFolders(tmp_path).names("loras") == ["a/c.pt", "b.safetensors"]


def test_old_folder_names_belong_to_the_new_keys(tmp_path: Path) -> None:
    _touch(tmp_path / "clip" / "a.safetensors", tmp_path / "unet" / "b.safetensors")
    folders = ModelFolders(tmp_path)

    assert folders.names("text_encoders") == ["a.safetensors"]
    assert folders.names("diffusion_models") == ["b.safetensors"]
    assert folders.names("no_such_key") is None


def test_links_to_files_and_folders_count(tmp_path: Path) -> None:
    _touch(tmp_path / "store" / "blob", tmp_path / "other" / "x.safetensors")
    (tmp_path / "models" / "vae").mkdir(parents=True)
    (tmp_path / "models" / "vae" / "v.safetensors").symlink_to(tmp_path / "store" / "blob")
    (tmp_path / "models" / "vae" / "sub").symlink_to(tmp_path / "other")

    assert ModelFolders(tmp_path / "models").names("vae") == ["sub/x.safetensors", "v.safetensors"]


def test_extra_model_paths_add_folders_and_keys(tmp_path: Path) -> None:
    _touch(tmp_path / "view" / "checkpoints" / "a.safetensors", tmp_path / "view" / "AnimateDiff" / "m.ckpt")
    config = tmp_path / "extra_model_paths.yaml"
    config.write_text(
        f"farm:\n  base_path: {tmp_path / 'view'}\n  is_default: true\n"
        "  checkpoints: checkpoints\n  AnimateDiff: |\n    AnimateDiff\n"
    )

    folders = ModelFolders(tmp_path / "models", config)

    assert folders.names("checkpoints") == ["a.safetensors"]
    assert folders.names("AnimateDiff") == ["m.ckpt"]
    assert folders.paths["checkpoints"][0] == tmp_path / "view" / "checkpoints"


def test_a_diffusers_pipeline_is_a_directory(tmp_path: Path) -> None:
    _touch(tmp_path / "diffusers" / "sd" / "model_index.json", tmp_path / "diffusers" / "other" / "x.json")

    assert ModelFolders(tmp_path).names("diffusers") == ["sd"]
