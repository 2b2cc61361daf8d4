"""Workflows of any format, as a render takes them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.errors import WorkflowError
from comfyfarm.farm.reading import read_to_render

DATA = Path(__file__).parents[2] / "data"


def of_the_editor(kind: str = "EmptyImage", **node: Any) -> dict[str, Any]:
    """A saved file with one node and a SaveImage."""
    first = {"id": 1, "type": kind, "inputs": [], "widgets_values": [16, 16, 1, 0],
             "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [7]}], **node}  # fmt: skip
    saver = {"id": 2, "type": "SaveImage", "inputs": [{"name": "images", "type": "IMAGE", "link": 7}],
             "widgets_values": ["picture"]}  # fmt: skip
    return {"nodes": [first, saver], "links": [[7, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}


async def test_a_file_of_the_editor_is_rendered_as_it_is(project: Any, serving: Any) -> None:
    served = serving()

    (row,) = await project.render(project.request(project.write("w.json", of_the_editor())))

    assert row.status == "succeeded"
    assert len(served.prompts) == 1


async def test_a_film_with_a_workflow_is_rendered(project: Any, serving: Any) -> None:
    serving()
    film = project.root / "old.mp4"
    shutil.copy(DATA / "carriers" / "tags.mp4", film)

    (row,) = await project.render(project.request(film))

    assert row.status == "succeeded"


async def test_the_same_call_again_runs_nothing(project: Any, serving: Any) -> None:
    served = serving()
    request = project.request(project.write("w.json", of_the_editor()))

    first = await project.render(request)
    again = await project.render(request)

    assert [row.id for row in first] == [row.id for row in again]
    assert len(served.prompts) == 1


def test_values_without_names_are_refused_with_the_command_that_names_them() -> None:
    data = json.dumps(of_the_editor("OwnNode")).encode()

    with pytest.raises(WorkflowError, match=r"comfyfarm convert w\.json --schema-from URL") as caught:
        read_to_render(data, name="w.json")

    assert "node 1 widgets_values" in str(caught.value)


def test_names_that_the_file_itself_gives_are_enough() -> None:
    inputs = [{"name": name, "type": "INT", "widget": {"name": name}} for name in ("a", "b", "c", "d")]
    data = json.dumps(of_the_editor("OwnNode", inputs=inputs)).encode()

    graph = read_to_render(data, name="w.json").workflow

    assert graph.node("1").inputs == {"a": 16, "b": 16, "c": 1, "d": 0}
