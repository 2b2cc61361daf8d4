"""Thumbnails and the page of them, which lies in Prefect's database and stays small."""

import base64
import io
import random
import re
from pathlib import Path

import pytest
from PIL import Image

from comfyfarm.outputs.contact_sheet import EDGE_PX, contact_sheet, thumbnail
from comfyfarm.outputs.names import SpooledFile


def spooled(path: Path) -> SpooledFile:
    return SpooledFile(path=path.name, local=path, sha256="0" * 64, size=path.stat().st_size)


def size_of(jpeg: bytes | None) -> tuple[int, int]:
    assert jpeg is not None
    with Image.open(io.BytesIO(jpeg)) as image:
        assert image.format == "JPEG"
        return image.size


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16", "CMYK", "F", "I"])
def test_a_picture_of_any_mode_becomes_a_small_jpeg(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("p.tiff" if mode in {"CMYK", "F", "I", "I;16", "LA"} else "p.png")
    Image.new(mode, (640, 320)).save(file)

    assert size_of(thumbnail([spooled(file)])) == (EDGE_PX, EDGE_PX // 2)


def test_sixteen_bits_of_grey_are_not_cut_to_white(tmp_path: Path) -> None:
    file = tmp_path / "depth.png"
    Image.new("I;16", (64, 64), 128 * 256).save(file)
    small = thumbnail([spooled(file)])

    assert small is not None
    with Image.open(io.BytesIO(small)) as image:
        pixels = image.convert("L").tobytes()
    assert 120 <= min(pixels) <= max(pixels) <= 136


def test_the_first_picture_is_taken_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    text, video, picture = tmp_path / "t.txt", tmp_path / "v.mp4", tmp_path / "p.webp"
    text.write_text("words")
    video.write_bytes(b"\0\0\0\x18ftypmp42" + bytes(40))
    Image.new("RGB", (30, 20), "red").save(picture)

    assert size_of(thumbnail([spooled(text), spooled(video), spooled(picture)])) == (30, 20)
    assert thumbnail([spooled(text)]) is None
    assert thumbnail([]) is None


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif"])
def test_a_damaged_picture_is_none_or_a_picture_and_never_an_error(tmp_path: Path, kind: str) -> None:
    whole = io.BytesIO()
    chance = random.Random(kind)
    Image.frombytes("RGB", (64, 64), chance.randbytes(64 * 64 * 3)).save(whole, kind)
    data = whole.getvalue()
    file = tmp_path / f"p.{kind}"
    for _ in range(150):
        broken = bytearray(data[: chance.randrange(len(data)) if chance.random() < 0.5 else len(data)])
        for _ in range(chance.randrange(4)):
            if broken:
                broken[chance.randrange(min(len(broken), 200))] = chance.randrange(256)
        file.write_bytes(broken)
        found = thumbnail([spooled(file)])
        assert found is None or found.startswith(b"\xff\xd8")


def test_a_bomb_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "p.png"
    Image.new("1", (20_000, 11_000)).save(file)

    assert thumbnail([spooled(file)]) is None


def jpeg(side: int = 32, seed: int = 0) -> bytes:
    made = io.BytesIO()
    pixels = random.Random(seed).randbytes(side * side * 3)
    Image.frombytes("RGB", (side, side), pixels).save(made, "JPEG", quality=70)
    return made.getvalue()


def test_the_sheet_is_a_table_of_six_in_a_row() -> None:
    sheet = contact_sheet([(f"job{n}", jpeg(seed=n)) for n in range(8)])
    lines = sheet.splitlines()

    assert len(lines) == 4
    assert [line.count("<img") for line in lines] == [0, 0, 6, 2]
    assert lines[1] == "|" + "---|" * 6
    assert re.findall(r"<br>(\w+)", sheet) == [f"job{n}" for n in range(8)]
    first = re.search(r"base64,([^\"]+)", sheet)
    assert first is not None
    assert base64.b64decode(first[1]) == jpeg(seed=0)
    assert "not shown" not in sheet


def test_it_holds_as_many_as_an_artifact_should_and_says_how_many_are_left() -> None:
    pictures = [(f"job{n}", jpeg(128)) for n in range(60)]
    sheet = contact_sheet(pictures)

    assert len(sheet) < 200_000
    shown = sheet.count("<img")
    assert 5 < shown < 60
    assert sheet.endswith(f"{60 - shown} more are not shown.")


def test_an_empty_sheet_is_empty() -> None:
    assert contact_sheet([]) == ""
