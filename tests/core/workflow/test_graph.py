"""The graph as a value, and its links."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import WorkflowError
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.checks.walk import find_cycles
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


LINKS = {
    "dangling_link", "slot_out_of_range", "slot_negative", "bad_link_shape", "cycle", "dead_cycle",
    "dead_node",
}  # fmt: skip


def of_links(workflow: Workflow, schema: NodeSchema) -> list[Finding]:
    return [f for f in check(workflow, schema, all_outputs=True) if f.code in LINKS]


def errors(workflow: Workflow, schema: NodeSchema) -> list[Finding]:
    return [f for f in of_links(workflow, schema) if f.severity == "error"]


def invert(source: str) -> dict[str, Any]:
    return {"class_type": "ImageInvert", "inputs": {"image": [source, 0]}}


def test_a_good_graph_passes(good: dict[str, Any], make: Make, schema: NodeSchema) -> None:
    assert errors(make(good), schema) == []


def test_a_copy_may_be_changed_and_the_workflow_stays(good: dict[str, Any], make: Make) -> None:
    workflow = make(good)
    copy = workflow.to_api()
    copy["1"]["inputs"]["width"] = 9
    good["1"]["inputs"]["height"] = 9

    assert workflow.to_api()["1"]["inputs"] == {"width": 64, "height": 64, "batch_size": 1, "color": 0}
    assert workflow.node("1").title == "Black"
    with pytest.raises(TypeError):
        workflow.node("1").inputs["width"] = 9  # type: ignore[index]


def test_the_order_of_keys_is_not_in_the_digest(good: dict[str, Any]) -> None:
    turned = {key: dict(reversed(good[key].items())) for key in reversed(good)}
    one, other = (read_workflow(json.dumps(g).encode(), name="w") for g in (good, turned))

    assert one.digest == other.digest
    assert one == other
    assert len({one, other}) == 1
    assert [node.id for node in one.nodes] == ["1", "2"]
    assert [node.id for node in other.nodes] == ["2", "1"]


def test_each_value_and_title_is_in_the_digest(good: dict[str, Any], make: Make) -> None:
    before = make(good).digest
    good["1"]["inputs"]["width"] = 65
    wider = make(good).digest
    good["1"]["_meta"]["title"] = "Night"

    assert len({before, wider, make(good).digest}) == 3


def test_it_survives_pickling(good: dict[str, Any], make: Make) -> None:
    workflow = make(good)

    assert pickle.loads(pickle.dumps(workflow)).to_api() == workflow.to_api()  # noqa: S301


def test_a_graph_that_was_never_text_survives_pickling_and_keeps_every_key(good: dict[str, Any]) -> None:
    good["1"]["inputs"] |= {"list": [1, ["2", 0], {"a": None}], "wrapped": {"__value__": [True, 1.5]}}
    good["1"] |= {"_meta": {"title": "é", "more": [1]}, "is_changed": ["x"]}
    workflow = Workflow.from_api(good, name="w.json")
    twin = pickle.loads(pickle.dumps(workflow))  # noqa: S301

    assert workflow.to_api() == good
    assert twin.to_api() == good
    assert (twin, twin.digest, hash(twin)) == (workflow, workflow.digest, hash(workflow))
    assert twin.nodes == workflow.nodes
    good["1"]["inputs"]["list"].append(2)
    assert workflow != Workflow.from_api(good, name="w.json")


def test_an_absent_node_is_named(good: dict[str, Any], make: Make) -> None:
    with pytest.raises(WorkflowError, match=r"w\.json: there is no node 9"):
        make(good).node("9")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (["99", 0], "dangling_link"),
        (["1", 5], "slot_out_of_range"),
        (["1", -1], "slot_negative"),
        (["1", 0.0], "bad_link_shape"),
        (["1", 0.5], "bad_link_shape"),
        (["1", "0"], "bad_link_shape"),
        (["1", True], "bad_link_shape"),
        (["1", 0, 0], "bad_link_shape"),
        (["1"], "bad_link_shape"),
    ],
)
def test_a_wrong_link_is_refused_by_name(
    good: dict[str, Any], make: Make, schema: NodeSchema, value: Any, code: str
) -> None:
    good["2"]["inputs"]["images"] = value

    found = errors(make(good), schema)

    assert [(f.code, f.node, f.field) for f in found] == [(code, "2", "images")]


def test_slots_of_unknown_classes_are_not_judged(
    make: Make, schema: NodeSchema, good: dict[str, Any]
) -> None:
    good["1"]["class_type"] = "Nobody Knows"
    good["2"]["inputs"]["images"] = ["1", 5]

    assert errors(make(good), schema) == []


def test_a_cycle_is_named_once_in_the_order_of_data(
    make: Make, schema: NodeSchema, good: dict[str, Any]
) -> None:
    graph = {"1": invert("3"), "2": invert("1"), "3": invert("2"), "9": good["2"]}

    (found,) = errors(make(graph), schema)

    assert found.code == "cycle"
    assert "1 → 2 → 3 → 1" in found.message


def test_a_node_that_feeds_itself_is_a_cycle(make: Make, schema: NodeSchema, good: dict[str, Any]) -> None:
    (found,) = errors(make({"1": invert("1"), "2": good["2"]}), schema)

    assert "a cycle: 1 → 1" in found.message


def test_what_no_output_needs_is_only_warned_of(make: Make, schema: NodeSchema, good: dict[str, Any]) -> None:
    graph = {**good, "5": invert("6"), "6": invert("5"), "7": invert("99")}

    found = of_links(make(graph), schema)

    assert sorted((f.code, f.severity) for f in found) == [
        ("dead_cycle", "warning"),
        ("dead_node", "warning"),
    ]


def test_a_long_chain_is_walked_without_recursion(make: Make, schema: NodeSchema) -> None:
    graph = {"0": {"class_type": "EmptyImage", "inputs": {}}}
    graph |= {str(n): invert(str(n - 1)) for n in range(1, 5000)}
    graph["end"] = {"class_type": "SaveImage", "inputs": {"images": ["4999", 0]}}

    assert errors(make(graph), schema) == []
    graph["0"] = invert("4999")
    assert [f.code for f in errors(make(graph), schema)] == ["cycle"]


EDGES = st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefg"), max_size=4))


@given(EDGES)
def test_every_cycle_is_real_and_a_graph_without_one_can_be_ordered(edges: dict[str, list[str]]) -> None:
    cycles = find_cycles(edges)

    for cycle in cycles:
        following = [*cycle[1:], cycle[0]]
        assert all(after in edges[before] for before, after in zip(cycle, following, strict=True))
    assert bool(cycles) == (not _can_be_ordered(edges))


def _can_be_ordered(edges: dict[str, list[str]]) -> bool:
    left = dict(edges)
    while True:
        free = [node for node, targets in left.items() if not any(target in left for target in targets)]
        if not free:
            return not left
        for node in free:
            del left[node]
