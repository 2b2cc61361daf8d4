"""A small good graph, and the schema that is shipped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema


@pytest.fixture(scope="session")
def schema() -> NodeSchema:
    return NodeSchema.shipped()


@pytest.fixture
def good() -> dict[str, Any]:
    return {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0},
            "_meta": {"title": "Black"},
        },
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "t"}},
    }


@pytest.fixture
def make() -> Callable[[dict[str, Any]], Workflow]:
    return lambda graph: read_workflow(json.dumps(graph).encode(), name="w.json")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    return Path(__file__).parents[2] / "data"


@pytest.fixture(scope="session")
def gold(data_dir: Path) -> dict[str, dict[str, Any]]:
    lines = (data_dir / "templates" / "gold.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["template"]: row["output"] for row in rows}
