"""A mirror as a catalogue."""

import json
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.lock.catalogue import Catalogue
from comfyfarm.lock.mirror_listing import catalogue_of_mirror, is_mirror

A, B = "aa" * 32, "bb" * 32


def meta(sha256: str, **changes: Any) -> tuple[str, bytes]:
    raw = {
        "sha256": sha256, "size": 5, "names": ["x.pt"], "folder": "vae", "source": None, "licence": None,
        "parts": [sha256],
    }  # fmt: skip
    return f"bucket/prefix/meta/{sha256}.json", json.dumps(raw | changes).encode()


def listed(*metas: tuple[str, bytes]) -> Catalogue:
    return catalogue_of_mirror(metas, source_of=lambda sha256: f"s3://b/{sha256[:2]}")


def test_a_file_of_a_known_folder_is_an_entry_under_each_name() -> None:
    found = listed(meta(A, names=["x.pt", "sub\\y.pt"], source="https://h/x", folder="clip"))

    assert [(e.folder, e.path, e.sha256, e.size) for e in found.entries] == [
        ("clip", "x.pt", A, 5),
        ("clip", "sub/y.pt", A, 5),
    ]
    assert found.entries[0].sources == ("s3://b/aa", "https://h/x")
    assert found.get("text_encoders", "x.pt") is not None


def test_a_file_of_an_unknown_folder_is_found_by_its_name_alone() -> None:
    found = listed(meta(A, folder=None), meta(B, names=["../evil"], source="a note"))

    assert found.entries == ()
    assert [(file.name, file.folder, file.sources) for file in found.loose] == [
        ("x.pt", None, ("s3://b/aa",)),
        ("../evil", "vae", ("s3://b/bb",)),
    ]


@pytest.mark.parametrize(
    "bad", [(f"meta/{A}.json", b"{"), ("meta/x.json", meta(A)[1]), (f"meta/{B}.json", meta(A)[1])]
)
def test_a_description_that_cannot_be_read_is_left_out_aloud(
    bad: tuple[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    assert len(listed(bad, meta(B)).entries) == 1
    assert f"{bad[0]}: says nothing" in caplog.text


def test_a_mirror_is_told_from_a_models_folder_by_what_is_in_it(tmp_path: Path) -> None:
    for name, place in {"meta": f"meta/{A}.json", "blobs": f"sha256/aa/{A}", "models": "vae/x.pt"}.items():
        file = tmp_path / name / place
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "meta_models" / "meta").mkdir(parents=True)

    assert [
        name for name in sorted(item.name for item in tmp_path.iterdir()) if is_mirror(tmp_path / name)
    ] == [
        "blobs",
        "meta",
    ]
