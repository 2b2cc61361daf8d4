"""A small good graph, and the schema that is shipped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.reports.report import Report
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


class Seen:
    """A report in short words, to be read beside the list of tricky cases."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.format = report.format
        self.says = {f"{f.severity.value[0].upper()} {f.code}" for f in report.findings}
        """Such as `W bom`."""
        self.says_where = {
            f"{f.severity.value[0].upper()} {f.code} {f.node}.{f.field}" for f in report.findings
        }
        self.models = [
            f"{r.node}.{r.input} {r.folder}/{r.path} {r.kind.value}{'' if r.active else ' off'}"
            for r in report.references
        ]
        """Such as `4.ckpt_name checkpoints/a.safetensors file`, with `off` when it would not be loaded."""
        self.loose = [f"{u.node}.{u.input} {u.name}" for u in report.unclassified]
        self.assets = [
            f"{a.node}.{a.input} {a.folder}/{a.path} {a.kind}{'' if a.active else ' off'}"
            for a in report.assets
        ]
        self.packs = {p.class_type: (p.url, p.commit, p.source) for p in report.packs}

    def words(self, code: str) -> str:
        """Message and remedy of the one finding of this code."""
        (found,) = [f for f in self.report.findings if f.code == code]
        return f"{found.message}; {found.remedy}"


@pytest.fixture(scope="session")
def look(schema: NodeSchema) -> Callable[..., Seen]:
    """Preflight of bytes, or of a tree that is written as JSON."""

    def look_at(given: Any, **more: Any) -> Seen:
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        return Seen(preflight(data, **{"name": "w", "schema": schema, **more}))

    return look_at
