"""Requirements of the packs that a graph needs."""

from pathlib import Path

import pytest

from comfyfarm.errors import UsageError
from comfyfarm.lock.pack_requirements import comfyui_requirements, requirements_of
from comfyfarm.workflow.packs.index import InstalledPack, PackIndex
from comfyfarm.workflow.packs.pack import Pack

URL = "https://github.com/a/One"
A, B = "a" * 40, "b" * 40


def row(class_type: str, commit: str | None = None) -> Pack:
    return Pack(class_type=class_type, pack="One", url=URL, commit=commit, source="cnr_id")


@pytest.fixture
def custom_nodes(tmp_path: Path) -> Path:
    folder = tmp_path / "one-folder"
    folder.mkdir()
    (folder / "requirements.txt").write_text("numpy\n")
    return tmp_path


@pytest.mark.parametrize("commit", [None, A])
def test_each_pack_is_read_once_from_its_checkout(custom_nodes: Path, commit: str | None) -> None:
    index = PackIndex(installed=(InstalledPack("one-folder", URL, A),))
    (found,) = requirements_of([row("X", commit), row("Y", commit)], index, custom_nodes)

    assert (found.pack, [line.text for line in found.lines]) == ("One", ["numpy"])
    assert found.findings == ()


def test_a_disabled_pack_is_read_all_the_same(custom_nodes: Path) -> None:
    (custom_nodes / "one-folder").rename(custom_nodes / "one-folder.disabled")
    index = PackIndex(installed=(InstalledPack("one-folder", URL, A),))

    assert len(requirements_of([row("X")], index, custom_nodes)[0].lines) == 1


@pytest.mark.parametrize(
    ("installed", "words"),
    [((), "no checkout"), ((InstalledPack("one-folder", URL, A),), f"does not have the commit {B[:12]}")],
)
def test_a_pack_that_cannot_be_read_is_said(
    custom_nodes: Path, installed: tuple[InstalledPack, ...], words: str
) -> None:
    (found,) = requirements_of([row("X", B)], PackIndex(installed=installed), custom_nodes)

    assert found.lines == ()
    assert [finding.code for finding in found.findings] == ["pack_requirements_unknown"]
    assert words in found.findings[0].message


def test_classes_without_a_pack_require_nothing(custom_nodes: Path) -> None:
    assert requirements_of([Pack(class_type="X")], PackIndex(), custom_nodes) == ()


def test_comfyui_is_known_by_its_requirements(custom_nodes: Path) -> None:
    assert [line.text for line in comfyui_requirements(custom_nodes / "one-folder").lines] == ["numpy"]
    with pytest.raises(UsageError, match="no ComfyUI"):
        comfyui_requirements(custom_nodes)
