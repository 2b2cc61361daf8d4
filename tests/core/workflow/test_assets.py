"""Input files by upload flags."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.assets import asset_findings, find_assets, place_assets
from comfyfarm.workflow.file_node import WIDGETS, FileNode
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import freeze
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


def listed(schema: NodeSchema, class_type: str, inputs: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What a node of a UI file names: input, folder, path and kind."""
    made = {name: freeze(value) for name, value in inputs.items()}
    found = find_assets([FileNode(NodeId("1"), class_type, made)], schema)
    return [(one.input, one.folder, one.path, one.kind) for one in found]


@pytest.mark.parametrize(
    ("class_type", "name", "value", "folder", "path"),
    [
        ("PrimaryInputLoadImage", "image", "a.png", "input", "a.png"),
        ("LoadImageExtended", "image", "sub\\a.png", "input", "sub/a.png"),
        ("ImageReceiver", "image", "s_00001_.png [temp]", "temp", "s_00001_.png"),
        ("LatentReceiver", "latent", "s_00001_.latent.png [temp]", "temp", "s_00001_.latent.png"),
        ("VHS_LoadVideo", "video", "a.mp4", "input", "a.mp4"),
        ("VHS_LoadAudio", "audio_file", "input/a.mp3", "input", "a.mp3"),
        ("VHS_LoadVideoPath", "video", '"./input/sub/a.mp4"', "input", "sub/a.mp4"),
        ("VHS_LoadVideoPath", "video", "output/a.mp4", "output", "a.mp4"),
        ("VHS_LoadVideoPath", "video", "clips/a.mp4", "input", "clips/a.mp4"),
    ],
)
def test_loaders_of_packs_are_known_without_a_server(
    schema: NodeSchema, class_type: str, name: str, value: str, folder: str, path: str
) -> None:
    assert listed(schema, class_type, {name: value}) == [(name, folder, path, "input")]
    assert listed(schema, class_type, {WIDGETS: [value, 1, 2]}) == [(name, folder, path, "input")]
    assert listed(schema, class_type, {WIDGETS: {name: value}}) == [(name, folder, path, "input")]


@pytest.mark.parametrize(
    ("class_type", "name", "value"),
    [
        ("VHS_LoadVideoPath", "video", "/home/me/a.mp4"),
        ("VHS_LoadVideoPath", "video", "C:\\a.mp4"),
        ("VHS_LoadVideoPath", "video", "X://insert/path/here.mp4"),
        ("VHS_LoadVideoPath", "video", "../a.mp4"),
        ("VHS_LoadAudio", "audio_file", "input/"),
        ("LoadImage //Inspire", "image", "#DATA"),
        ("ComfyUIDeployExternalImage", "input_id", "input_image"),
        ("LoadImageFromUrl", "image", "/srv/a.png"),
    ],
)
def test_what_lies_elsewhere_is_the_nodes_own_affair(
    schema: NodeSchema, class_type: str, name: str, value: str
) -> None:
    assert listed(schema, class_type, {name: value}) == []


@pytest.mark.parametrize(
    ("class_type", "name"),
    [
        ("LoadImagesFromURL", "url"),
        ("LoadVideoFromURL", "url"),
        ("Load Image From Url (mtb)", "url"),
        ("ComfyUIDeployExternalImage", "default_value_url"),
        ("AILab_LoadImageSimple", "image_path_or_URL"),
    ],
)
def test_loaders_of_addresses_are_known(make: Make, schema: NodeSchema, class_type: str, name: str) -> None:
    url = "https://host/a.png"
    found = find_assets(make({"1": {"class_type": class_type, "inputs": {name: url}}}), schema)
    (finding,) = asset_findings(found)

    assert [(one.input, one.path, one.kind) for one in found] == [(name, url, "url")]
    assert (finding.code, finding.field) == ("url_asset", name)
    assert "when the node runs" in finding.message


def test_addresses_stand_one_a_line(schema: NodeSchema) -> None:
    value = "https://host/a.png\n\n https://host/b.png\nnone"

    assert [path for _, _, path, _ in listed(schema, "LoadImagesFromURL", {"url": value})] == [
        "https://host/a.png",
        "https://host/b.png",
    ]


def test_a_path_from_where_the_server_was_started_stays_one(make: Make) -> None:
    workflow = make({"1": {"class_type": "VHS_LoadAudio", "inputs": {"audio_file": "input/a.mp3"}}})
    placed = place_assets(workflow, {(NodeId("1"), "audio_file"): "ab12/a.mp3"})

    assert placed.node("1").inputs["audio_file"] == "input/ab12/a.mp3"


@pytest.mark.parametrize(
    ("widgets", "found"),
    [
        (["", "a.png", "lanczos"], [("image", "input", "a.png", "input")]),
        (["a.png", "alpha", "image"], [("image", "input", "a.png", "input")]),
        (["https://host/a", "", "lanczos"], [("image_path_or_URL", "input", "https://host/a", "url")]),
        (["", "alpha", "image"], []),
        (["O:/pictures/a.png", "", "lanczos"], []),
    ],
)
def test_a_list_of_another_version_invents_no_file(
    schema: NodeSchema, widgets: list[str], found: list[tuple[str, str, str, str]]
) -> None:
    assert listed(schema, "AILab_LoadImage", {WIDGETS: widgets}) == found
