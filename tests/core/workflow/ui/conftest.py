"""UI files to convert: small ones made here, odd ones, real ones, and what the real editor makes of them."""

import gzip
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.file_node import Editor
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import Converted, convert

DATA = Path(__file__).parents[3] / "data"
ROOT = DATA.parents[1]


@cache
def _packed(path: str) -> Any:
    return json.loads(gzip.decompress((DATA / path).read_bytes()))


@pytest.fixture(scope="session")
def run(schema: NodeSchema) -> Callable[..., Converted]:
    """Convert a tree by the shipped schema."""

    def convert_it(tree: Any, *, editor: Editor = "1.58") -> Converted:
        return convert(tree, schema, editor=editor)

    return convert_it


@pytest.fixture(scope="session")
def tricky() -> Callable[[str], Any]:
    """One of the odd files, by the beginning of its name; a copy of its own."""

    def load(start: str) -> Any:
        found = [tree for name, tree in _packed("ui/tricky.json.gz").items() if name.startswith(start)]
        assert len(found) == 1, start
        return json.loads(json.dumps(found[0]))

    return load


@pytest.fixture(scope="session")
def real_files() -> dict[str, Any]:
    """Real UI files with the references that a person found in them, of packages and of `data/workflows`."""
    truths = (json.loads(path.read_bytes()) for path in (DATA / "workflows").glob("*.truth.json"))
    pairs = ((truth, _true_file(truth)) for truth in truths if truth["format"] == "ui")
    found = {truth["id"]: {"tree": tree, "truth": truth} for truth, tree in pairs if tree is not None}
    assert len(found) >= 4
    return found


def _true_file(truth: dict[str, Any]) -> Any:
    """The file that a truth speaks of; None of a wheel that is not there."""
    if truth["source"].startswith("pypi:comfyui-workflow-templates"):
        folder = files("comfyui_workflow_templates_json") / "templates"
        return json.loads((folder / Path(truth["path"]).name).read_bytes())
    if not truth["source"].startswith("pypi:"):
        return json.loads((DATA / "workflows" / Path(truth["file"]).name).read_bytes())
    wheel = next((ROOT / ".venv" / "data").glob("comfyui_subgraph_blueprints-0.0.13-*.whl"), None)
    if wheel is None:
        return None
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read(truth["path"]))


@pytest.fixture(scope="session")
def gold_graphs() -> dict[str, Any]:
    """What editor 1.45.20 made of each template."""
    rows = gzip.decompress((DATA / "templates" / "gold.jsonl.gz").read_bytes()).splitlines()
    return {row["template"]: row["output"] for row in map(json.loads, rows)}


@pytest.fixture(scope="session")
def templates() -> Mapping[str, Any]:
    """All UI files of the installed template package."""
    folder = files("comfyui_workflow_templates_json") / "templates"
    texts = (path for path in folder.iterdir() if path.name.endswith(".json"))
    return dict(pair for path in texts for pair in _ui(path.name, path.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def other_packages() -> Callable[[str], Iterator[tuple[str, Any]]]:
    """All UI files of a wheel that lies as data beside the virtual environment."""

    def trees(wheel: str) -> Iterator[tuple[str, Any]]:
        path = next((ROOT / ".venv" / "data").glob(f"{wheel}-*.whl"), None)
        assert path is not None, f"no wheel of {wheel}: `make setup` fetches it"
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield from _ui(name, archive.read(name).decode())

    return trees


def _ui(name: str, text: str) -> Iterator[tuple[str, Any]]:
    tree = json.loads(text)
    if isinstance(tree, dict) and isinstance(tree.get("nodes"), list):
        yield name, tree


@pytest.fixture(scope="session")
def node() -> Callable[..., dict[str, Any]]:
    """A node of a UI file: inputs as name → (type, link) or (type, link, widget)."""

    def make(node_id: Any, kind: str, *values: Any, **more: Any) -> dict[str, Any]:
        inputs = [
            {"name": name, "type": spec[0], "link": spec[1]}
            | ({"widget": {"name": name}} if len(spec) > 2 else {})
            for name, spec in more.pop("inputs", {}).items()
        ]
        outputs = [{"name": kind, "type": kind, "links": []} for kind in more.pop("outputs", ())]
        found = {"id": node_id, "type": kind, "mode": 0, "inputs": inputs, "outputs": outputs}
        return {**found, "widgets_values": list(values), "properties": {}, **more}

    return make


@pytest.fixture(scope="session")
def subgraph() -> Callable[..., dict[str, Any]]:
    """A definition of a subgraph: inputs and outputs as name → type, links as rows."""

    def make(key: str, nodes: list[Any], links: list[Any], **more: Any) -> dict[str, Any]:
        rows = [dict(zip(_LINK, row, strict=True)) for row in links]
        ends: dict[str, list[Any]] = {}
        for end, side, own in (("inputs", "origin", -10), ("outputs", "target", -20)):
            slots = enumerate(more.pop(end, {}).items())
            ends[end] = [
                {
                    "name": name,
                    "type": kind,
                    "linkIds": [r["id"] for r in rows if (r[f"{side}_id"], r[f"{side}_slot"]) == (own, at)],
                }
                for at, (name, kind) in slots
            ]
        io = {"inputNode": {"id": -10}, "outputNode": {"id": -20}}
        return {"id": key, "name": f"the {key}", "nodes": nodes, "links": rows, **io, **ends, **more}

    return make


_LINK = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
