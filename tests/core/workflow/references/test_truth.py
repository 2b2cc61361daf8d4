"""References against what people found in real files, and against what the editor says of templates."""

import json
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.assets import find_assets
from comfyfarm.workflow.folders import modern
from comfyfarm.workflow.reading.reader import read
from comfyfarm.workflow.references.find import References, find_references
from comfyfarm.workflow.schema import NodeSchema

TRUTHS = [
    "0165b9e4cab2",
    "270d14ed5279",
    "33332c9e7452",
    "382109ecebe1",
    "3cdc28c5dd62",
    "658c0a3285a6",
    "7181ce2eda1a",
    "814821c21bbf",
    "88aae7212a16",
    "99348e78281f",
    "f28708beff34",
]
KINDS = {"folder": "directory", "dict": "file"}
BLUEPRINTS = Path(sys.prefix) / "data" / "comfyui_subgraph_blueprints-0.0.13-py3-none-any.whl"


def file_of(truth: dict[str, Any], data_dir: Path) -> bytes:
    """The file that a truth speaks of: copied here, in a package, or in a wheel."""
    if truth["source"].startswith("pypi:comfyui-workflow-templates"):
        return (
            files("comfyui_workflow_templates_json") / "templates" / Path(truth["path"]).name
        ).read_bytes()
    if truth["source"].startswith("pypi:"):
        with zipfile.ZipFile(BLUEPRINTS) as wheel:
            return wheel.read(truth["path"])
    return (data_dir / "workflows" / Path(truth["file"]).name).read_bytes()


def rows_of(found: References) -> set[tuple[object, ...]]:
    return {
        (r.node, r.class_type, r.input, r.name, r.folder, str(r.kind), r.active) for r in found.references
    }


def true_rows(truth: dict[str, Any]) -> set[tuple[object, ...]]:
    """An implicit model has no name in the file, and one of a hub lies in no folder."""
    return {
        (
            ref["node"],
            ref["class_type"],
            ref["input"],
            None if ref["kind"] == "implicit" else ref["name"],
            None if ref["kind"] == "hf_repo" else ref["folder"],
            KINDS.get(ref["kind"], ref["kind"]),
            ref["active"],
        )
        for ref in truth["model_refs"]
    }


@pytest.mark.parametrize("name", TRUTHS)
def test_what_is_found_is_what_people_found(data_dir: Path, schema: NodeSchema, name: str) -> None:
    truth = json.loads((data_dir / "workflows" / f"{name}.truth.json").read_text(encoding="utf-8"))
    found = find_references(read(file_of(truth, data_dir), name=name, schema=schema).nodes, schema)

    assert rows_of(found) == true_rows(truth)
    assert found.unclassified == ()


@pytest.mark.parametrize("name", TRUTHS)
def test_the_input_files_are_those_that_people_found(data_dir: Path, schema: NodeSchema, name: str) -> None:
    truth = json.loads((data_dir / "workflows" / f"{name}.truth.json").read_text(encoding="utf-8"))
    found = find_assets(read(file_of(truth, data_dir), name=name, schema=schema).nodes, schema)
    keys = ("node", "class_type", "input", "name", "kind", "active")

    mine = {tuple(asset.model_dump()[key] for key in keys) for asset in found}
    assert mine == {tuple(asset[key] for key in keys) for asset in truth["input_assets"]}


def test_every_download_that_the_editor_notes_is_found_in_its_folder(schema: NodeSchema) -> None:
    """Of the hundreds of templates installed, not one model is lost or put elsewhere."""
    noted = 0
    for path in sorted((Path(str(files("comfyui_workflow_templates_json"))) / "templates").glob("*.json")):
        data = path.read_bytes()
        if b'"class_type"' not in data and b'"nodes"' not in data:
            continue
        nodes = read(data, name=path.name, schema=schema).nodes
        found = find_references(nodes, schema)
        have = {(r.node, r.folder, r.path) for r in found.references}
        for node in nodes:
            for hint in node.models if node.active else ():
                noted += 1
                assert (node.id, modern(hint.directory or ""), hint.name) in have, f"{path.name} {node.id}"
        assert found.unclassified == (), path.name

    assert noted > 1000
