"""Files with both graphs: row B8 of the tricky cases."""

import json
from copy import deepcopy
from typing import Any

import pytest

from comfyfarm.workflow.file_node import ModelHint
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.reading.reader import Reading, read

API: dict[str, Any] = {
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["4", 1]}},
    "9": {"class_type": "SomePack", "inputs": {"conditioning": ["6", 0], "strength": 0.5, "mode": "x"}},
}
UI: dict[str, Any] = {
    "nodes": [
        {
            "id": 4,
            "type": "CheckpointLoaderSimple",
            "mode": 0,
            "outputs": [
                {"name": "MODEL", "type": "MODEL", "links": []},
                {"name": "CLIP", "type": "CLIP", "links": [1]},
                {"name": "VAE", "type": "VAE", "links": []},
            ],
            "properties": {
                "cnr_id": "comfy-core",
                "models": [
                    {"name": "a.safetensors", "url": "https://example.org/a", "directory": "checkpoints"}
                ],
            },
            "widgets_values": ["a.safetensors"],
        },
        {
            "id": 6,
            "type": "CLIPTextEncode",
            "mode": 0,
            "inputs": [{"name": "clip", "type": "CLIP", "link": 1}],
            "outputs": [{"name": "CONDITIONING", "type": "CONDITIONING", "links": [2]}],
            "widgets_values": ["a cat"],
        },
        {
            "id": 9,
            "type": "SomePack",
            "mode": 0,
            "inputs": [{"name": "conditioning", "type": "CONDITIONING", "link": 2}],
            "properties": {"aux_id": "someone/pack"},
            "widgets_values": [0.5, "x"],
        },
        {"id": 11, "type": "VAELoader", "mode": 2, "widgets_values": ["ae.safetensors"]},
    ],
    "links": [[1, 4, 1, 6, 0, "CLIP"], [2, 6, 0, 9, 0, "CONDITIONING"]],
    "version": 0.4,
}


def picture(*texts: tuple[str, str]) -> bytes:
    whole = b"\x89PNG\r\n\x1a\n"
    for kind, body in [(b"IHDR", b""), *((b"tEXt", f"{key}\0{text}".encode()) for key, text in texts)]:
        whole += len(body).to_bytes(4, "big") + kind + body + b"crc0"
    return whole + b"\0\0\0\0IEND"


def reading(prompt: Any, workflow: Any) -> Reading:
    texts = (("prompt", json.dumps(prompt)), ("workflow", json.dumps(workflow)))
    return read(picture(*texts), name="p.json")


def codes(found: Reading) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in found.findings]


def test_values_come_from_the_one_and_hints_from_the_other() -> None:
    found = reading(API, UI)

    assert found.format == "api"
    assert found.workflow.to_api() == API
    assert codes(found) == [("embedded", "info")]
    nodes = {node.id: node for node in found.nodes}
    assert nodes["4"].models == (  # type: ignore[index]
        ModelHint("a.safetensors", "https://example.org/a", "checkpoints"),
    )
    assert nodes["9"].pack is not None  # type: ignore[index]
    assert nodes["9"].pack.aux_id == "someone/pack"  # type: ignore[index]
    assert nodes["9"].inputs["strength"] == 0.5  # type: ignore[index]
    assert [(node.id, node.class_type) for node in found.nodes if not node.active] == [("11", "VAELoader")]


def test_the_same_holds_for_a_prompt_body() -> None:
    body = {"prompt": API, "extra_data": {"extra_pnginfo": {"workflow": UI}}}
    found = read(json.dumps(body).encode(), name="w")

    assert codes(found) == [("wrapped", "info")]
    assert [node.active for node in found.nodes] == [True, True, True, False]


def with_value(node: str, name: str, value: Any) -> dict[str, Any]:
    graph = deepcopy(API)
    graph[node]["inputs"][name] = value
    return graph


DISAGREE = {
    "value": (with_value("4", "ckpt_name", "b.safetensors"), "4.ckpt_name"),
    "link": (with_value("6", "clip", ["4", 0]), "6.clip"),
    "link-for-value": (with_value("6", "text", ["4", 0]), "6.text"),
    "new-link": (with_value("6", "more", ["4", 0]), "6.more"),
    "class": ({**API, "6": {**API["6"], "class_type": "CLIPTextEncodeFlux"}}, "node 6 has two classes"),
    "only-first": ({**API, "7": API["6"]}, "node 7 is only in the first"),
    "only-second": ({"4": API["4"]}, "node 6 is only in the second"),
}


@pytest.mark.parametrize(("graph", "place"), DISAGREE.values(), ids=DISAGREE)
def test_graphs_that_disagree_are_told(graph: dict[str, Any], place: str) -> None:
    found = reading(graph, UI)

    assert codes(found) == [("embedded", "info"), ("carriers_disagree", "warning")]
    assert place in found.findings[-1].message
    assert found.workflow.to_api() == graph


def test_a_node_of_no_known_class_may_live_in_the_editor_alone() -> None:
    assert codes(reading({"4": API["4"], "6": API["6"]}, UI)) == [("embedded", "info")]


@pytest.mark.parametrize(
    "graph",
    [with_value("9", "more", 5), {**API, "9": {**API["9"], "inputs": {"conditioning": ["6", 0]}}}],
    ids=["default", "unnamed-widget"],
)
def test_a_value_on_one_side_only_is_no_disagreement(graph: dict[str, Any]) -> None:
    assert codes(reading(graph, UI)) == [("embedded", "info")]


def test_what_the_editor_fills_in_is_no_disagreement() -> None:
    tree = deepcopy(UI)
    tree["nodes"][1]["widgets_values"] = ["a {cat|dog}"]

    assert codes(reading(API, tree)) == [("embedded", "info")]


def test_links_without_wires_are_no_disagreement() -> None:
    tree = deepcopy(UI)
    tree["nodes"].append({"id": 20, "type": "Anything Everywhere", "mode": 0, "widgets_values": []})

    assert codes(reading(with_value("6", "more", ["4", 0]), tree)) == [("embedded", "info")]


def test_either_graph_alone_will_do() -> None:
    assert read(picture(("prompt", json.dumps(API))), name="p").workflow.to_api() == API
    assert read(picture(("workflow", json.dumps(UI))), name="p").format == "ui"
    assert read(picture(("workflow", json.dumps(API))), name="p").format == "api"
    assert read(picture(("prompt", json.dumps(json.dumps(API)))), name="p").format == "api"


@pytest.mark.parametrize(("broken", "form"), [("workflow", "api"), ("prompt", "ui")])
def test_a_broken_graph_beside_a_good_one_is_a_warning(broken: str, form: str) -> None:
    texts = {"prompt": json.dumps(API), "workflow": json.dumps(UI)}
    texts[broken] = texts[broken][:-9]
    found = read(picture(*texts.items()), name="p")

    assert found.format == form
    assert ("bad_json", "warning") in codes(found)
    assert broken in {finding.field for finding in found.findings}


def test_two_broken_graphs_are_refused() -> None:
    with pytest.raises(Refused) as caught:
        read(picture(("prompt", '{"1":'), ("workflow", '{"nodes":')), name="p")
    assert [finding.code for finding in caught.value.findings] == ["bad_json", "bad_json"]


def test_flaws_of_the_graph_that_only_hints_are_warnings() -> None:
    texts = (("prompt", json.dumps(API)), ("workflow", json.dumps(UI).replace("0.5", "NaN")))

    assert ("non_finite", "warning") in codes(read(picture(*texts), name="p"))


def test_json_that_is_no_graph_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        read(picture(("prompt", "[1, 2]")), name="p")
    assert caught.value.findings[-1].code == "not_comfy_metadata"
