"""Reading workflow files: rows A, B and C of the tricky cases, as far as API format goes."""

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import WorkflowError
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.reader import read, read_workflow

Make = Callable[[dict[str, Any]], Workflow]


def refusal(data: bytes) -> Refused:
    with pytest.raises(Refused) as caught:
        read_workflow(data, name="w.json")
    return caught.value


def codes(graph: Any) -> list[str]:
    return [finding.code for finding in read(json.dumps(graph).encode(), name="w").findings]


@pytest.mark.parametrize(
    "data", [b"", b" \n", b"null", b"[]", b'"text"', b"3", b"\x89PNG\r\n\x1a\n", b"RIFFxxxx"]
)
def test_what_is_no_object_is_no_workflow(data: bytes) -> None:
    refused = refusal(data)

    assert refused.findings[0].code == "not_a_workflow"
    assert "Export (API)" in str(refused)


@pytest.mark.parametrize("data", [b"{}", b'{"prompt":{}}', b'{"version":0.4}'])
def test_a_graph_without_nodes_is_refused(data: bytes) -> None:
    assert refusal(data).findings[-1].code == "empty_graph"


def test_ui_format_is_refused_with_the_way_out() -> None:
    refused = refusal(b'{"nodes":[{"id":1,"type":"EmptyImage"}],"links":[],"version":0.4}')

    assert refused.findings[0].code == "ui_format"
    assert 'choose "Export (API)"' in str(refused)


def test_a_byte_order_mark_is_accepted_with_a_warning(good: dict[str, Any]) -> None:
    found = read(b"\xef\xbb\xbf" + json.dumps(good).encode(), name="w")

    assert [(f.code, f.severity) for f in found.findings] == [("bom", "warning")]
    assert found.workflow.to_api() == good


def test_the_body_of_a_prompt_request_is_unwrapped(good: dict[str, Any], make: Make) -> None:
    body = {"prompt": good, "client_id": "x", "extra_data": {"a": 1}}

    assert make(body) == make(good)
    assert codes(body) == ["wrapped"]


def test_a_node_may_be_called_prompt(good: dict[str, Any], make: Make) -> None:
    graph = {"prompt": good["1"], "2": {**good["2"], "inputs": {"images": ["prompt", 0]}}}

    assert [node.id for node in make(graph).nodes] == ["prompt", "2"]


def test_keys_that_are_no_nodes_are_dropped_and_told(good: dict[str, Any], make: Make) -> None:
    strays = {"_meta": {"title": "x"}, "version": 0.4, "_comment": "hello"}

    assert make({**good, **strays}) == make(good)
    assert codes({**good, **strays}) == ["stray_key"] * 3


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"inputs": {}}, "class_type"),
        ({"class_type": None, "inputs": {}}, "class_type"),
        ({"class_type": ["a"], "inputs": {}}, "class_type"),
        ({"class_type": "", "inputs": {}}, "class_type"),
        ({"class_type": "SaveImage", "inputs": None}, "inputs"),
        ({"class_type": "SaveImage", "inputs": []}, "inputs"),
        (5, None),
        ({}, "class_type"),
    ],
)
def test_a_node_of_wrong_shape_is_named(good: dict[str, Any], node: Any, field: str | None) -> None:
    refused = refusal(json.dumps({**good, "7": node}).encode())

    assert [(f.node, f.field) for f in refused.findings] == [("7", field)]
    assert "w.json: node 7" in str(refused)


def test_all_wrong_nodes_are_named_at_once(good: dict[str, Any]) -> None:
    refused = refusal(json.dumps({**good, "7": {"inputs": {}}, "8": {"inputs": 3}}).encode())

    assert [finding.node for finding in refused.findings] == ["7", "8", "8"]


def test_missing_inputs_are_none(make: Make) -> None:
    assert make({"1": {"class_type": "EmptyImage"}}).node("1").inputs == {}


def test_a_numeric_link_is_read_as_text_with_a_warning(good: dict[str, Any], make: Make) -> None:
    good["2"]["inputs"]["images"] = [1, 0]

    assert make(good).node("2").inputs["images"] == Link("1", 0)  # type: ignore[arg-type]
    assert codes(good) == ["numeric_link_id"]


def test_what_an_executed_prompt_leaves_behind_is_dropped() -> None:
    data = b'{"1":{"class_type":"EmptyImage","inputs":{},"is_changed":[NaN]}}'

    assert read_workflow(data, name="w").to_api() == {"1": {"class_type": "EmptyImage", "inputs": {}}}


def test_ids_are_opaque(good: dict[str, Any], make: Make) -> None:
    for odd in ("10:3", "538_604", "model_loader", "10.3", "-1"):
        assert make({odd: good["1"]}).node(odd).class_type == "EmptyImage"


def test_a_refusal_survives_pickling() -> None:
    refused = refusal(b'{"1":{}}')

    assert str(pickle.loads(pickle.dumps(refused))) == str(refused)  # noqa: S301


@given(st.binary(max_size=100))
def test_no_bytes_end_in_another_error(data: bytes) -> None:
    with suppress(WorkflowError):
        assert read_workflow(data, name="w").nodes


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["1", "class_type", "inputs", "prompt", "nodes", "_meta"]), inner, max_size=4
        )
    ),
    max_leaves=30,
)


@given(VALUES)
def test_no_json_ends_in_another_error(value: Any) -> None:
    try:
        workflow = read_workflow(json.dumps(value).encode(), name="w")
    except WorkflowError:
        return
    assert workflow.nodes
    assert read_workflow(json.dumps(workflow.to_api()).encode(), name="w") == workflow
