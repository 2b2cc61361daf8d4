"""Thumbnails kept for the contact sheet."""

from pathlib import Path

from PIL import Image

from comfyfarm.farm.pictures import Pictures
from comfyfarm.ids import JobId
from comfyfarm.ledger.records import JobRecord, Status
from comfyfarm.outputs.names import SpooledFile


def job(position: int) -> JobRecord:
    return JobRecord(
        id=JobId(f"{position:08}-0000-4000-8000-000000000001"),
        batch="b",
        position=position,
        status=Status.RENDERED,
        graph_digest="0" * 64,
        overrides=(),
        content_digest="0" * 64,
    )


def spooled(file: Path) -> SpooledFile:
    return SpooledFile(path=file.name, local=file, sha256="0" * 64, size=file.stat().st_size)


def test_pictures_are_kept_in_the_order_of_the_batch(tmp_path: Path) -> None:
    file = tmp_path / "p.png"
    Image.new("RGB", (64, 64), "red").save(file)
    for position in (11, 2, 500):
        Pictures(tmp_path, "a batch / with any name").keep(job(position), [spooled(file)])

    found = Pictures(tmp_path, "a batch / with any name").load()

    assert [label for label, _ in found] == ["00000002", "00000011"]
    assert all(jpeg.startswith(b"\xff\xd8") for _, jpeg in found)
    assert Pictures(tmp_path, "another").load() == ()


def test_what_is_no_picture_leaves_none(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_text("no picture")
    Pictures(tmp_path, "b").keep(job(0), [spooled(file)])

    assert Pictures(tmp_path, "b").load() == ()
