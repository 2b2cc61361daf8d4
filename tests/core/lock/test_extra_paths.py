"""`extra_model_paths.yaml`, read as ComfyUI reads it."""

from pathlib import Path

import pytest
import yaml

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.extra_paths import is_extra_paths, roots_of_extra_paths
from comfyfarm.lock.models_folder import Root, catalogue_from_roots

TEXT = """
a111:
    base_path: $FARM_MODELS/webui
    checkpoints: models/Stable-diffusion
    clip: |
        models/clip
        models/t5

    custom_nodes: nodes
    AnimateDiff: ad
nothing:
first:
    is_default: true
    checkpoints: here
again:
    is_default: true
    checkpoints: /absent
    loras: ~/loras
"""


def roots(text: str, tmp_path: Path) -> list[Root]:
    raw = yaml.safe_load(text)
    assert is_extra_paths(raw)
    return list(roots_of_extra_paths(raw, file=tmp_path / "extra.yaml"))


def test_sections_bases_and_blocks_are_read_in_comfyuis_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARM_MODELS", "sub")  # relative to the file once it is replaced
    base = tmp_path / "sub" / "webui"
    for place in ("models/Stable-diffusion", "models/clip", "models/t5", "ad", "nodes"):
        (base / place).mkdir(parents=True)
    (tmp_path / "here").mkdir()

    assert roots(TEXT, tmp_path) == [
        Root("checkpoints", tmp_path / "here"),
        Root("checkpoints", base / "models/Stable-diffusion"),
        Root("text_encoders", base / "models/clip"),
        Root("text_encoders", base / "models/t5"),
        Root("AnimateDiff", base / "ad"),
    ]


def test_the_home_is_replaced_in_a_base_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "m").mkdir(parents=True)

    assert roots("a: {base_path: ~/, vae: m}", tmp_path / "other") == [Root("vae", tmp_path / "home" / "m")]


def test_of_one_name_in_two_directories_the_first_counts(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "sub" / "x.pt").write_bytes(place.encode())
    found = catalogue_from_roots(roots("a: {vae: 'two\n\n  one\n'}", tmp_path), name="extra.yaml", wants=None)

    assert [(e.folder, e.path, e.size, Path(e.sources[0]).parts[-3]) for e in found.entries] == [
        ("vae", "sub/x.pt", 3, "two")
    ]


@pytest.mark.parametrize(
    "raw", [[], {}, {"models": []}, {"a": 1}, {"a": None}, {"a": {"vae": ["x"]}}, "text"]
)
def test_other_documents_are_no_extra_paths(raw: object) -> None:
    assert not is_extra_paths(raw)


def test_a_value_that_is_no_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"extra\.yaml: a\.vae: is no path"):
        roots_of_extra_paths({"a": {"vae": True}}, file=tmp_path / "extra.yaml")
