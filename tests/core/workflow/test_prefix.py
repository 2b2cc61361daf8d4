"""Output prefixes and expected outputs."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.prefix import expected_outputs, prefix_findings, with_output_prefix
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ComfyUI", "job/ComfyUI"),
        ("video/ComfyUI", "job/video/ComfyUI"),
        ("%date:yyyy%/x", "job/%date:yyyy%/x"),
        ("", "job/ComfyUI"),
        ("sub/", "job/sub/ComfyUI"),
        ("/abs/x", "job/abs/x"),
        ("../../x", "job/x"),
        ("..\\x", "job/x"),
        ("..", "job/ComfyUI"),
        ("013d968c-0000-4000-8000-000000000001/a/x", "job/a/x"),
        ("013d968c-0000-4000-8000-000000000001/023d968c-0000-4000-8000-000000000001/x", "job/x"),
        ("013d968c-0000-4000-8000-000000000001", "job/013d968c-0000-4000-8000-000000000001"),
    ],
)
def test_the_old_prefix_is_kept_inside_the_new(
    good: dict[str, Any], make: Make, schema: NodeSchema, old: str, new: str
) -> None:
    good["2"]["inputs"]["filename_prefix"] = old

    assert with_output_prefix(make(good), schema, "job").node("2").inputs["filename_prefix"] == new


@pytest.mark.parametrize(
    ("prefix", "is_told"),
    [
        ("../../x", True),
        ("a/../../x", True),
        ("..\\x", True),
        ("/abs/x", True),
        ("C:\\x", True),
        ("..", False),
        ("a/../x", False),
        ("video/x", False),
        ("", False),
    ],
)
def test_a_prefix_that_leads_out_of_the_output_folder_is_told(
    good: dict[str, Any], make: Make, schema: NodeSchema, prefix: str, is_told: bool
) -> None:
    good["2"]["inputs"]["filename_prefix"] = prefix
    found = [one for one in check(make(good), schema) if one.code == "path_escape"]

    places = [(one.severity, one.node, one.field) for one in found]
    assert places == [("warning", "2", "filename_prefix")] * is_told


@pytest.mark.parametrize(
    ("class_type", "name", "value"),
    [
        ("SaveImageDataSetToFolder", "folder_name", ".."),
        ("SaveLoRA", "prefix", "../x"),
        ("SaveVideo", "filename_prefix", "../x"),
    ],
)
def test_all_inputs_that_say_where_to_save_are_looked_at(
    make: Make, schema: NodeSchema, class_type: str, name: str, value: str
) -> None:
    (found,) = prefix_findings(make({"1": {"class_type": class_type, "inputs": {name: value}}}), schema)

    assert (found.code, found.field) == ("path_escape", name)


def test_a_default_is_added_where_the_file_leaves_it_out(make: Make, schema: NodeSchema) -> None:
    workflow = make({"1": {"class_type": "SaveVideo", "inputs": {}}})

    assert with_output_prefix(workflow, schema, "j").node("1").inputs["filename_prefix"] == "j/video/ComfyUI"


def test_a_prefix_that_comes_over_a_link_stays(make: Make, schema: NodeSchema) -> None:
    workflow = make({"1": {"class_type": "SaveImage", "inputs": {"filename_prefix": ["2", 0]}}})

    assert with_output_prefix(workflow, schema, "j").node("1").inputs["filename_prefix"] == Link(
        NodeId("2"), 0
    )


def test_nodes_that_make_only_their_folder_get_the_prefix_there(make: Make, schema: NodeSchema) -> None:
    inputs = {"folder_name": "set", "filename_prefix": "image"}
    workflow = make({"1": {"class_type": "SaveImageDataSetToFolder", "inputs": inputs}})

    assert with_output_prefix(workflow, schema, "j").node("1").inputs == {
        "folder_name": "j/set",
        "filename_prefix": "image",
    }


def test_unknown_classes_are_left_alone(make: Make, schema: NodeSchema) -> None:
    workflow = make({"1": {"class_type": "Nobody", "inputs": {"filename_prefix": "x"}}})

    assert with_output_prefix(workflow, schema, "j") == workflow


def test_only_what_tells_the_history_is_expected(make: Make, schema: NodeSchema) -> None:
    classes = ["SaveImage", "PreviewImage", "CheckpointSave", "PreviewAny", "SaveGLB", "KSampler"]
    workflow = make({str(n): {"class_type": name, "inputs": {}} for n, name in enumerate(classes)})

    assert expected_outputs(workflow, schema) == ("0", "4")
