"""Files that say how they end."""

import io
from pathlib import Path

import pytest
from PIL import Image

from comfyfarm.outputs.whole import is_whole


def picture(kind: str) -> bytes:
    made = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 60)).save(made, kind)
    return made.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("missing", [0, 1, 9, 40])
def test_a_picture_without_its_end_is_not_whole(tmp_path: Path, kind: str, missing: int) -> None:
    data = picture(kind)
    file = tmp_path / "picture"
    file.write_bytes(data[: len(data) - missing])

    assert is_whole(file) == (missing == 0)


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n", b"RIF", b"fLaC and more", b"any text"])
def test_what_does_not_say_how_it_ends_is_taken_as_it_is(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)

    assert is_whole(file)


@pytest.mark.parametrize("name", ["a.png", "B.MP4", "c.flac", "d.glb"])
@pytest.mark.parametrize("data", [b"", b"\n <!DOCTYPE html><html>log in</html>", b"<html>", b"<?xml version"])
def test_a_page_or_nothing_is_no_picture(tmp_path: Path, name: str, data: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(data)

    assert not is_whole(file, name=name)
    assert is_whole(file, name="notes.svg")
