"""`comfyfarm convert`: stdout is the graph and nothing else."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Command = Callable[..., Result]
DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def tricky(tmp_path: Path) -> Callable[[str], Path]:
    """Write a file of the editor's to disk."""
    held: dict[str, Any] = json.loads(gzip.decompress((DATA / "ui" / "tricky.json.gz").read_bytes()))

    def write(name: str) -> Path:
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(held[name]))
        return file

    return write


def test_a_file_of_the_editor_becomes_an_api_graph(command: Command, tricky: Callable[[str], Path]) -> None:
    told = command("convert", tricky("e6_base"))
    graph = json.loads(told.stdout)

    assert told.exit_code == 0
    assert graph["1"]["inputs"] == {"ckpt_name": "x.safetensors"}
    assert graph["5"]["inputs"]["model"] == ["2", 0]
    assert graph["5"]["inputs"]["seed"] == 1


def test_an_api_file_passes_unchanged(command: Command, tmp_path: Path) -> None:
    graph = {
        "b": {"inputs": {"filename_prefix": "p", "images": ["a:1", 0]}, "class_type": "SaveImage",
              "_meta": {"title": "Out"}, "is_changed": ["x"]},
        "a:1": {"class_type": "EmptyImage",
                "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 2**53 + 1, "text": "é🙂"}},
    }  # fmt: skip
    file = tmp_path / "w.json"
    file.write_text(json.dumps(graph))
    told = command("convert", file)

    assert json.loads(told.stdout) == graph
    assert list(json.loads(told.stdout)) == ["b", "a:1"]


def test_the_graph_inside_a_request_is_printed_bare(command: Command, picture: Path, tmp_path: Path) -> None:
    graph = json.loads(picture.read_text())
    wrapped = tmp_path / "body.json"
    wrapped.write_text(json.dumps({"prompt": graph, "client_id": "c"}))

    assert json.loads(command("convert", wrapped).stdout) == graph


def test_a_film_is_converted_too(command: Command) -> None:
    told = command("convert", DATA / "carriers" / "tags.mp4")

    assert told.exit_code == 0
    assert {node["class_type"] for node in json.loads(told.stdout).values()} == {"EmptyImage", "SaveImage"}


def test_editors_of_different_age_give_different_values(
    command: Command, tricky: Callable[[str], Path]
) -> None:
    file = tricky("e3_newproxy_instance_values")
    old = json.loads(command("convert", file, "--editor", "1.45").stdout)
    told = command("convert", file)

    assert old != json.loads(told.stdout)
    assert json.loads(command("convert", file, "--editor", "1.58").stdout) == json.loads(told.stdout)
    assert "host_vs_inner" not in told.stdout
    assert f"warning: host_vs_inner: {file}: " in told.stderr


def test_errors_are_told_beside_the_graph(command: Command, tricky: Callable[[str], Path]) -> None:
    file = tricky("e10_duplicate_id")
    told = command("convert", file)

    assert told.exit_code == 1
    assert json.loads(told.stdout)
    assert f"error: duplicate_node_id: {file}: " in told.stderr
    nothing = command("convert", DATA / "carriers" / "bare.mp4")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
