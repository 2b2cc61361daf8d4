"""GLB and safetensors: a JSON header that carries the graphs."""

import json
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.carriers import SUFFIXES
from comfyfarm.workflow.carriers.embedded import embedded
from comfyfarm.workflow.findings import Refused


def glb(root: bytes, *, more: int = 0) -> bytes:
    body = len(root).to_bytes(4, "little") + b"JSON" + root
    return b"glTF\2\0\0\0" + (12 + len(body) + more).to_bytes(4, "little") + body


def safetensors(header: dict[str, Any]) -> bytes:
    data = json.dumps(header).encode()
    return len(data).to_bytes(8, "little") + data + b"\0" * 16


def test_the_extras_of_a_glb_file_are_read(graph: dict[str, Any], prompt: str) -> None:
    root = {"asset": {"version": "2.0", "extras": {"prompt": prompt, "workflow": {"nodes": []}}}}
    found = embedded(glb(json.dumps(root).encode()), name="m")

    assert found is not None
    assert found.kind == "a GLB model"
    assert {key: json.loads(text) for key, text in found.texts} == {
        "prompt": graph,
        "workflow": {"nodes": []},
    }


def test_a_cut_glb_file_is_noticed(prompt: str) -> None:
    root = json.dumps({"extras": {"prompt": prompt}}).encode()
    found = embedded(glb(root, more=100), name="m")

    assert found is not None
    assert [finding.code for finding in found.findings] == ["truncated"]


def test_the_metadata_of_a_latent_is_read(prompt: str) -> None:
    found = embedded(safetensors({"__metadata__": {"prompt": prompt}, "latent_tensor": {}}), name="l")

    assert found is not None
    assert found.texts == (("prompt", prompt.encode()),)


@pytest.mark.parametrize("data", [glb(b"[]"), glb(b"{"), safetensors({}), safetensors({"a": 1})[:12]])
def test_headers_without_a_graph_are_refused(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        embedded(data, name="m")
    assert caught.value.findings[0].code == "not_comfy_metadata"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GIF89a", "a GIF picture"),
        (b"PK\x03\x04", "a zip archive"),
        (b"RIFF\0\0\0\0WAVE", "a WAV sound or AVI film"),
        (b"\xff\xfb\x90\0", "an MP3 or AAC sound"),
    ],
)
def test_files_that_carry_no_graph_are_named(data: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        embedded(data, name="m")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b" \n", b"\xff\xfe{\0", b"<html></html>", b"x" * 20])
def test_what_may_be_json_is_left_to_its_reader(data: bytes) -> None:
    assert embedded(data, name="m") is None


def test_each_sample_has_a_suffix_that_is_looked_for(data_dir: Path) -> None:
    suffixes = {Path(file.name.removesuffix(".gz")).suffix for file in (data_dir / "carriers").iterdir()}

    assert suffixes - {".md"} <= SUFFIXES
    assert ".json" not in SUFFIXES
