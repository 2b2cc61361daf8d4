"""The report on one file, from its bytes: its form, and that there always is one."""

import json
from typing import Any

import pytest

from comfyfarm.workflow.packs.index import PackIndex
from comfyfarm.workflow.packs.policy import Policy
from comfyfarm.workflow.preflight import PackRules, preflight
from comfyfarm.workflow.schema import NodeSchema


def test_the_report_has_the_form_that_outsiders_read(schema: NodeSchema, good: dict[str, Any]) -> None:
    good["4"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}}
    good["7"] = {"class_type": "LoadImage", "inputs": {"image": "a.png"}}
    good["8"] = {"class_type": "VAEDecode", "inputs": {"samples": ["1", 0], "vae": ["4", 2], "x": "odd.pth"}}
    printed = preflight(json.dumps(good).encode(), name="w.json", schema=schema).model_dump(mode="json")

    assert list(printed) == ["file", "format", "findings", "references", "unclassified", "packs", "assets"]
    assert (printed["file"], printed["format"], printed["packs"]) == ("w.json", "api", [])
    assert printed["references"] == [
        {
            "node": "4",
            "class_type": "CheckpointLoaderSimple",
            "input": "ckpt_name",
            "name": "m.safetensors",
            "folder": "checkpoints",
            "path": "m.safetensors",
            "kind": "file",
            "active": True,
        }
    ]
    assert printed["unclassified"] == [
        {"node": "8", "class_type": "VAEDecode", "input": "x", "name": "odd.pth"}
    ]
    assert printed["assets"][0]["name"] == "a.png"
    assert {tuple(finding) for finding in printed["findings"]} == {
        ("code", "severity", "node", "field", "message", "remedy")
    }


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"{", "bad_json"),
        (b'{"nodes":[]}', "empty_graph"),
        (b"[]", "not_a_workflow"),
        (b"", "not_a_workflow"),
    ],
)
def test_what_cannot_be_read_is_a_report_too(schema: NodeSchema, data: bytes, code: str) -> None:
    found = preflight(data, name="https://u:secret@h/w.json?token=abc", schema=schema)

    assert code in {one.code for one in found.findings}
    assert found.has_errors
    assert "secret" not in found.file
    assert "abc" not in found.file


def test_the_character_nul_in_a_file_is_named_once_with_node_and_input(
    schema: NodeSchema, good: dict[str, Any]
) -> None:
    good["1"]["inputs"]["color"] = "a\0b"

    found = preflight(json.dumps(good).encode(), name="w.json", schema=schema).findings
    (nul,) = [one for one in found if one.code == "nul_character"]

    assert (nul.severity, nul.node, nul.field) == ("error", "1", "color")


def test_an_unknown_class_is_named_with_the_pack_that_has_it(
    schema: NodeSchema, good: dict[str, Any]
) -> None:
    good["9"] = {"class_type": "OwnNode", "inputs": {}}
    rules = PackRules(index=PackIndex(classes={"OwnNode": ("https://github.com/u/own-nodes",)}))

    found = preflight(json.dumps(good).encode(), name="w.json", schema=schema, packs=rules)
    (unknown,) = [one for one in found.findings if one.code == "unknown_class"]

    assert "https://github.com/u/own-nodes" in unknown.message
    assert [(one.class_type, one.pack, one.source) for one in found.packs] == [
        ("OwnNode", "own-nodes", "node_map")
    ]


def test_what_the_policy_does_not_let_in_is_an_error(schema: NodeSchema, good: dict[str, Any]) -> None:
    rules = PackRules(policy=Policy(allow_classes=("SaveImage",)))

    found = preflight(json.dumps(good).encode(), name="w.json", schema=schema, packs=rules)

    assert [(one.code, one.node) for one in found.findings if one.severity == "error"] == [
        ("class_not_allowed", "1")
    ]


def test_muted_nodes_are_reported_as_not_active(schema: NodeSchema) -> None:
    loader = {"id": 4, "type": "VAELoader", "mode": 2, "inputs": [], "widgets_values": ["v.safetensors"]}
    image = {"id": 1, "type": "EmptyImage", "inputs": [], "widgets_values": [64, 64, 1, 0],
             "outputs": [{"name": "IMAGE", "type": "IMAGE", "links": [7]}]}  # fmt: skip
    saver = {"id": 2, "type": "SaveImage", "inputs": [{"name": "images", "type": "IMAGE", "link": 7}],
             "widgets_values": ["t"]}  # fmt: skip
    tree = {"nodes": [loader, image, saver], "links": [[7, 1, 0, 2, 0, "IMAGE"]], "version": 0.4}

    found = preflight(json.dumps(tree).encode(), name="w.json", schema=schema)

    assert found.format == "ui"
    assert not found.has_errors
    assert [(one.node, one.folder, one.active) for one in found.references] == [("4", "vae", False)]
    assert found.classes == {"4": "VAELoader", "1": "EmptyImage", "2": "SaveImage"}


def test_addresses_in_a_graph_are_reported_without_their_secrets(
    schema: NodeSchema, good: dict[str, Any]
) -> None:
    address = "https://h/api/download/models/1?type=Model&token=abc123"
    good["4"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": address}}
    good["5"] = {"class_type": "LoadImage", "inputs": {"image": "https://u:abc123@h/a.png"}}

    printed = preflight(json.dumps(good).encode(), name="w.json", schema=schema).model_dump_json()

    assert "https://h/api/download/models/1?type=Model&token=***" in printed
    assert "abc123" not in printed
