"""Input files by upload flags."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.assets import find_assets, place_assets
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


@pytest.mark.parametrize(
    ("class_type", "name"),
    [
        ("LoadImage", "image"),
        ("LoadImageMask", "image"),
        ("LoadAudio", "audio"),
        ("LoadVideo", "file"),
        ("Load3D", "model_file"),
        ("LoadLatent", "latent"),
    ],
)
def test_each_kind_of_input_file_is_found(make: Make, schema: NodeSchema, class_type: str, name: str) -> None:
    workflow = make({"1": {"class_type": class_type, "inputs": {name: "sub\\a b.x", "other": 1}}})
    (found,) = find_assets(workflow, schema)

    assert (found.node, found.class_type, found.input) == ("1", class_type, name)
    assert (found.name, found.path, found.folder, found.kind) == ("sub\\a b.x", "sub/a b.x", "input", "input")


@pytest.mark.parametrize(
    ("name", "path", "folder"),
    [
        ("a.png [output]", "a.png", "output"),
        ("clipspace/m-1.png [input]", "clipspace/m-1.png", "input"),
        ("a.png [temp]", "a.png", "temp"),
        ("a.png[input]", "a.png", "input"),
        ("a [x].png", "a [x].png", "input"),
    ],
)
def test_annotations_say_the_folder(
    make: Make, schema: NodeSchema, name: str, path: str, folder: str
) -> None:
    (found,) = find_assets(make({"1": {"class_type": "LoadImage", "inputs": {"image": name}}}), schema)

    assert (found.name, found.path, found.folder) == (name, path, folder)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs/x.png", "C:\\x.png", "a/../../b.png"])
def test_a_path_that_leads_out_is_known(make: Make, schema: NodeSchema, name: str) -> None:
    (found,) = find_assets(make({"1": {"class_type": "LoadImage", "inputs": {"image": name}}}), schema)

    assert found.escapes


def test_an_address_is_told_apart(make: Make, schema: NodeSchema) -> None:
    url = "https://replicate.delivery/x/0_3.webp"
    (found,) = find_assets(make({"1": {"class_type": "LoadImage", "inputs": {"image": url}}}), schema)

    assert (found.kind, found.path, found.escapes) == ("url", url, False)


def test_links_and_nothing_are_no_files(make: Make, schema: NodeSchema) -> None:
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": ["2", 0]}},
        "2": {"class_type": "Painter", "inputs": {"mask": ""}},
    }

    assert find_assets(make(graph), schema) == ()


def test_uploaded_files_are_put_in_place(make: Make, schema: NodeSchema) -> None:
    workflow = make({"19:2": {"class_type": "LoadImage", "inputs": {"image": "a.png [output]"}}})
    placed = place_assets(workflow, {(NodeId("19:2"), "image"): "ab12/a.png"})

    assert placed.node("19:2").inputs["image"] == "ab12/a.png"
    assert workflow.node("19:2").inputs["image"] == "a.png [output]"
