"""Which format is it, and where does the graph lie: rows B of the tricky cases."""

import contextlib
import gc
import json
from typing import Any

import pytest

from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.reading.reader import Reading, read, read_workflow
from comfyfarm.workflow.reading.wrappers import MAX_WRAPPERS
from comfyfarm.workflow.schema import NodeSchema

API: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 0}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "t"}},
}


def ui(*, links_as: type = list, version: float = 0.4) -> dict[str, Any]:
    """The same as the editor saves it."""
    link = [1, 1, 0, 2, 0, "IMAGE"]
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    return {
        "nodes": [
            {
                "id": 1,
                "type": "EmptyImage",
                "mode": 0,
                "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [1]}],
                "properties": {"cnr_id": "comfy-core"},
                "widgets_values": [64, 64, 1, 0],
            },
            {
                "id": 2,
                "type": "SaveImage",
                "mode": 0,
                "inputs": [{"name": "images", "type": "IMAGE", "link": 1}],
                "widgets_values": ["t"],
            },
        ],
        "links": [link if links_as is list else dict(zip(keys, link, strict=True))],
        "version": version,
    }


def reading(tree: Any) -> Reading:
    return read(json.dumps(tree).encode(), name="w.json")


def graph_of(found: Reading) -> dict[str, Any]:
    """The graph without titles, which depend on the editor's file."""
    return {
        key: {"class_type": node["class_type"], "inputs": node["inputs"]}
        for key, node in found.workflow.to_api().items()
    }


HISTORY = [3, "0c2e", API, {"extra_pnginfo": {}, "client_id": "x"}, ["2"]]
WRAPPED = {
    "B1-posted-raw": ({"prompt": ui(), "client_id": "x"}, "ui"),
    "B2-body": ({"prompt": API, "client_id": "x", "extra_data": {"a": 1}}, "api"),
    "B2-body-with-extra": ({"prompt": API, "extra_data": {"extra_pnginfo": {"workflow": ui()}}}, "api"),
    "B3-runpod": ({"input": {"workflow": API, "images": [{"name": "a.png"}]}}, "api"),
    "B3-runpod-ui": ({"input": {"workflow": ui()}}, "ui"),
    "B3-salad": ({"prompt": API, "webhook": "https://example.org"}, "api"),
    "B3-text": ({"workflow": json.dumps(API)}, "api"),
    "B3-cog": ({"input": {"workflow_json": json.dumps(API)}}, "api"),
    "B3-text-in-text": (json.dumps(json.dumps(API)), "api"),
    "B3-video-helper": ({"prompt": json.dumps(API), "workflow": ui()}, "api"),
    "history": ({"prompt": HISTORY, "outputs": {}, "status": {}}, "api"),
    "history-by-id": ({"0c2e": {"prompt": HISTORY, "outputs": {}}}, "api"),
    "queue-entry": (HISTORY, "api"),
    "jobs-api": ({"id": "j", "workflow": {"prompt": API, "extra_data": {}}}, "api"),
    "graph-to-prompt": ({"workflow": ui(), "output": API}, "api"),
    "list-of-one": ([API], "api"),
    "list-of-one-ui": ([ui()], "ui"),
}


@pytest.mark.parametrize(("tree", "form"), WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_graph_is_found(tree: Any, form: str) -> None:
    found = reading(tree)

    assert graph_of(found) == API
    assert found.format == form
    codes = [(finding.code, finding.severity) for finding in found.findings]
    assert codes == [("wrapped", "info"), *([("ui_format", "info")] if form == "ui" else [])]


UI_FILES = {
    "B1": ui(),
    "B5": {**ui(links_as=dict, version=1), "state": {"lastNodeId": 2}},
    "B5-mixed": {**ui(), "links": [ui(links_as=dict)["links"][0]]},
}


@pytest.mark.parametrize("tree", UI_FILES.values(), ids=UI_FILES)
def test_what_the_editor_saves_is_converted(tree: dict[str, Any]) -> None:
    found = reading(tree)

    assert (found.format, graph_of(found)) == ("ui", API)
    assert [(finding.code, finding.severity) for finding in found.findings] == [("ui_format", "info")]
    assert found.nodes[0].pack is not None


def test_row_b6_widgets_with_names_are_read_by_name() -> None:
    tree = ui()
    tree["nodes"][0]["widgets_values"] = {"color": 5, "width": 64, "height": 64, "batch_size": 1}

    assert graph_of(reading(tree))["1"]["inputs"]["color"] == 5


@pytest.mark.parametrize("key", ["prompt", "workflow", "input", "output", "nodes"])
def test_row_b4_a_node_may_have_any_id(key: str) -> None:
    graph = {key: API["1"], "2": {**API["2"], "inputs": {"images": [key, 0]}}}
    found = reading(graph)

    assert [node.id for node in found.workflow.nodes] == [key, "2"]
    assert found.findings == ()
    assert reading({"prompt": graph}).workflow == found.workflow


def test_row_b4_holds_when_that_node_is_broken() -> None:
    found = reading({"prompt": {"inputs": {}}, "2": API["2"]})

    assert [(finding.code, finding.node) for finding in found.findings] == [("class_type", "prompt")]


def test_row_b7_stray_keys_are_dropped_and_told() -> None:
    found = reading({**API, "_meta": {"title": "x"}, "version": 0.4, "_comment": "hello", "nodes": []})

    assert graph_of(found) == API
    assert [(finding.code, finding.severity) for finding in found.findings] == [("stray_key", "warning")] * 4


def test_row_b12_a_group_of_workflow_component_is_no_crash() -> None:
    tree = ui()
    tree["nodes"][0]["type"] = "## group [2c8c61]"

    assert reading(tree).format == "ui"
    assert reading({"1": {**API["1"], "class_type": "workflow>Group"}, "2": API["2"]}).format == "api"


def test_row_b13_a_blueprint_is_read_though_it_has_no_output(schema: NodeSchema) -> None:
    tree = ui()
    del tree["nodes"][1]
    found = reading(tree)

    assert [node.class_type for node in found.nodes] == ["EmptyImage"]
    told = check(found.workflow, schema, from_editor=found.format == "ui")
    assert ("no_outputs", "info") in {(finding.code, finding.severity) for finding in told}


@pytest.mark.parametrize(
    "tree",
    [
        [API, API],
        [{"class_type": "EmptyImage", "inputs": {}}],
        {"nodes": []},
        {"prompt": {}},
        {"input": {"workflow": "a text"}},
        {"a": {"prompt": []}},
        [[[[]]]],
    ],
)
def test_what_holds_no_graph_is_refused(tree: Any) -> None:
    with pytest.raises(Refused) as caught:
        reading(tree)
    assert caught.value.findings[-1].code in {"not_a_workflow", "empty_graph", "class_type"}


@pytest.mark.parametrize("has_ids", [True, False])
def test_nodes_by_their_ids_are_read_like_a_list(has_ids: bool) -> None:
    whole, tree = ui(), ui()
    tree["nodes"] = {str(node["id"]): node for node in tree["nodes"]}
    tree["links"] = {str(link[0]): link for link in tree["links"]}
    if not has_ids:
        for node in tree["nodes"].values():
            del node["id"]
    found = reading(tree)

    assert found.format == "ui"
    assert found.workflow == reading(whole).workflow
    assert len(found.workflow.nodes) == 2


def test_a_broken_graph_in_a_text_says_where() -> None:
    with pytest.raises(Refused, match=r"not JSON: .* at line 1"):
        reading({"workflow": '{"1": {"class_type"'})


def test_words_that_look_like_json_are_no_fault_where_a_graph_is() -> None:
    assert reading({"prompt": "{a cat|a dog}", "workflow": API}).format == "api"


def test_flaws_are_placed_at_the_node_however_deep_the_graph_lies() -> None:
    data = json.dumps({"input": {"workflow": API}}).replace('"color": 0', '"color": NaN')
    flaw = read(data.encode(), name="w").findings[0]

    assert (flaw.code, flaw.node, flaw.field) == ("non_finite", "1", "color")
    assert "$.input.workflow.1.inputs.color" in flaw.message


def test_flaws_of_a_ui_file_are_placed_at_its_node() -> None:
    data = json.dumps(ui()).replace("[64, 64, 1, 0]", "[64, 64, 1, NaN]")
    flaw = read(data.encode(), name="w").findings[0]

    assert (flaw.code, flaw.node, flaw.field) == ("non_finite", "1", "widgets_values")


def test_flaws_beside_the_graph_are_told() -> None:
    found = read(json.dumps({"prompt": API, "number": float("nan")}).encode(), name="w")

    assert [(f.code, f.node) for f in found.findings] == [("non_finite", None), ("wrapped", None)]
    with pytest.raises(Refused):
        read_workflow(json.dumps({"prompt": API, "number": float("nan")}).encode(), name="w")


def test_wrappers_have_a_bound() -> None:
    tree: Any = API
    for _ in range(MAX_WRAPPERS):
        tree = {"input": tree}
    assert graph_of(reading(tree)) == API

    with pytest.raises(Refused):
        reading({"input": {"input": tree}})
    text = json.dumps(API)
    for _ in range(MAX_WRAPPERS + 2):
        text = json.dumps(text)
    with pytest.raises(Refused):
        read(text.encode(), name="w")


def test_a_file_of_muted_nodes_is_a_reading_with_an_error() -> None:
    tree = ui()
    for node in tree["nodes"]:
        node["mode"] = 2
    found = reading(tree)

    assert found.workflow.nodes == ()
    assert [(node.class_type, node.active) for node in found.nodes] == [
        ("EmptyImage", False),
        ("SaveImage", False),
    ]
    assert found.findings[-1].code == "empty_graph"


def test_the_schema_that_is_given_names_the_widgets() -> None:
    made_up = {"input": {"required": {"size": ["INT", {}]}}, "output": [], "output_node": True}
    made_up |= {"input_order": {"required": ["size"]}, "output_name": [], "name": "MadeUp"}
    schema = NodeSchema.from_object_info({"MadeUp": made_up}, name="a server")
    tree = {"nodes": [{"id": 1, "type": "MadeUp", "mode": 0, "widgets_values": [7]}], "links": []}
    found = read(json.dumps(tree).encode(), name="w", schema=schema)

    assert found.workflow.to_api()["1"]["inputs"] == {"size": 7}
    workflow = read_workflow(json.dumps(tree).encode(), name="w", schema=schema)
    assert workflow == found.workflow


@pytest.mark.parametrize("data", [json.dumps(API).encode(), json.dumps(ui()).encode(), b"null"])
def test_the_search_for_garbage_goes_on_after_reading(data: bytes) -> None:
    with contextlib.suppress(Refused):
        read(data, name="w")

    assert gc.isenabled()
