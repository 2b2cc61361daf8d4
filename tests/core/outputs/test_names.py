"""Names of any kind become safe ones, and different ones stay different."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from comfyfarm.outputs.names import MAX_PART_BYTES, MAX_PATH_BYTES, safe_relative

_NASTY = st.text(
    st.one_of(st.sampled_from('/\\.: ~_\0\n"*?<>|CONaux\u202e\ud800é\u0301'), st.characters()), max_size=12
)


@pytest.mark.parametrize(
    ("subfolder", "name", "path"),
    [
        ("", "ComfyUI_00001_.png", "ComfyUI_00001_.png"),
        ("video/final cut", "clip 1.webm", "video/final cut/clip 1.webm"),
        ("a\\b", "x.png", "a/b/x.png"),
        ("./a//b/", "x.png", "a/b/x.png"),
        ("", "日本の絵 #1 (100%).png", "日本の絵 #1 (100%).png"),
        ("", ".hidden", ".hidden"),
        ("", "scene.tar.gz", "scene.tar.gz"),
    ],
)
def test_a_harmless_name_stays_as_it_is(subfolder: str, name: str, path: str) -> None:
    assert safe_relative(subfolder, name) == path


@pytest.mark.parametrize(
    ("subfolder", "name", "start", "end"),
    [
        ("..", "x.png", "_/x~", ".png"),
        ("/etc", "passwd", "etc/passwd", ""),
        ("C:\\Windows", "x.png", "C_/Windows/x~", ".png"),
        ("", "../../x.png", "_.._.._x~", ".png"),
        ("", "a/b.png", "a_b~", ".png"),
        ("", "CON.png", "_CON~", ".png"),
        ("", "a\nb\x7f.png", "a_b_~", ".png"),
        ("", "", "_~", ""),
        ("", "..", "_~", ""),
        ("", "provenance.json", "_provenance~", ".json"),
        ("", "Provenance.JSON", "_Provenance~", ".JSON"),
        ("", "x" * 300 + ".safetensors", "x" * 100, ".safetensors"),
        ("", "é" * 200 + ".png", "é" * 50, ".png"),
        ("/".join(["deep"] * 200), "x.png", "x~", ".png"),
    ],
)
def test_a_dangerous_name_is_changed_and_marked(subfolder: str, name: str, start: str, end: str) -> None:
    path = safe_relative(subfolder, name)

    assert path.startswith(start)
    assert path.endswith(end)


@given(subfolder=_NASTY, name=_NASTY)
@example("..\\..", "x")
@example("", "\ud800")
def test_no_name_escapes_and_every_part_fits_a_file_system(subfolder: str, name: str) -> None:
    path = safe_relative(subfolder, name)

    parts = path.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert "\\" not in path
    assert ":" not in path
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in path)
    assert all(len(part.encode()) <= MAX_PART_BYTES for part in parts)
    assert len(path.encode()) <= MAX_PATH_BYTES
    assert unicodedata.is_normalized("NFC", path)
    assert path.casefold() != "provenance.json"
    assert safe_relative(*_split(path)) == path


@given(one=st.tuples(_NASTY, _NASTY), other=st.tuples(_NASTY, _NASTY))
@example(("", "a:b"), ("", "a_b"))
@example(("", "a?b"), ("", "a*b"))
@example(("", "é.png"), ("", "e\u0301.png"))
@example(("a", "b"), ("", "a/b"))
@example(("", "x" * 300), ("", "x" * 301))
def test_different_names_stay_different(one: tuple[str, str], other: tuple[str, str]) -> None:
    if _meaning(*one) != _meaning(*other):
        assert safe_relative(*one) != safe_relative(*other)


def _meaning(subfolder: str, name: str) -> list[str]:
    return [*(part for part in subfolder.replace("\\", "/").split("/") if part not in {"", "."}), name]


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name
