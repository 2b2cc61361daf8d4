import pytest

from comfyfarm.workflow.model_files import WEIGHTS, is_model_file, is_pickled
from comfyfarm.workflow.names import base_name, slashed


@pytest.mark.parametrize("suffix", WEIGHTS)
def test_weights_are_files_of_models(suffix: str) -> None:
    assert is_model_file(f"a{suffix.upper()} ")


@pytest.mark.parametrize(
    ("name", "is_pickle"), [("a/b.CKPT", True), ("b.pth ", True), ("b.safetensors", False), ("ckpt", False)]
)
def test_pickles_are_told_by_their_name(name: str, *, is_pickle: bool) -> None:
    assert is_pickled(name) is is_pickle


def test_folders_are_written_in_two_ways() -> None:
    assert slashed("a\\b/c.pt") == "a/b/c.pt"
    assert base_name("a/b\\c.pt") == base_name("c.pt") == "c.pt"
