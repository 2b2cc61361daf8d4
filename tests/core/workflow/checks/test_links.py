"""Links and lists, one by one: what ComfyUI would follow, what it would refuse, what nobody can tell."""

import json
from typing import Any

import pytest

from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.checks.walk import reachable
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.schema import NodeSchema


def graph(**extra: Any) -> dict[str, Any]:
    sizes = {"width": 64, "height": 64, "batch_size": 1, "color": 0}
    return {
        "1": {"class_type": "EmptyImage", "inputs": {**sizes, **extra}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "t"}},
    }


def codes(made: dict[str, Any], schema: NodeSchema) -> list[tuple[str, str, str | None]]:
    found = check(Workflow.from_api(made, name="w"), schema)
    return [(f.code, f.severity.value, f.field) for f in found if f.code != "extra_input"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2, 3], []),
        ([], []),
        (["a", "b"], []),
        (["a", 2], [("ambiguous_list", "warning", "sizes")]),
        (["99", 0], [("dangling_link", "warning", "sizes")]),
        (["19:3", 0], [("dangling_link", "warning", "sizes")]),
        (["2", 1.5], [("ambiguous_list", "warning", "sizes")]),
        (["2", "x", "y"], [("ambiguous_list", "warning", "sizes")]),
        (["1", 5], [("slot_out_of_range", "warning", "sizes")]),
    ],
)
def test_a_list_that_comfyui_does_not_look_at_is_never_an_error(
    schema: NodeSchema, value: Any, expected: list[Any]
) -> None:
    made = graph()
    made["2"]["inputs"]["sizes"] = value

    assert codes(made, schema) == expected


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (["a", 2], "dangling_link"),
        (["99", 0], "dangling_link"),
        ([1, 2, 3], "bad_link_shape"),
        ([], "bad_link_shape"),
        ([["1", 0]], "bad_link_shape"),
        (["1", None], "bad_link_shape"),
        (["1", 5], "slot_out_of_range"),
        (["1", 10**30], "slot_out_of_range"),
        (["1", -(10**30)], "slot_negative"),
    ],
)
def test_a_list_that_comfyui_looks_at_has_to_be_a_link(schema: NodeSchema, value: Any, code: str) -> None:
    made = graph()
    made["2"]["inputs"]["images"] = value

    assert codes(made, schema) == [(code, "error", "images")]


def test_links_of_unknown_classes_are_looked_at_by_their_look(schema: NodeSchema) -> None:
    made = graph()
    made["3"] = {"class_type": "Nobody", "inputs": {"a": ["99", 0], "b": ["x", 2], "c": ["1", 1.0], "d": [1]}}

    assert codes(made, schema) == [
        ("unknown_class", "error", "class_type"),
        ("dangling_link", "error", "a"),
        ("ambiguous_list", "warning", "b"),
        ("bad_link_shape", "error", "c"),
    ]


def test_a_cycle_through_an_input_that_the_class_does_not_have_is_a_cycle(schema: NodeSchema) -> None:
    assert codes(graph(extra=["2", 0]), schema)[-1][:2] == ("cycle", "error")


def test_two_cycles_are_two_and_a_long_one_is_cut_short(schema: NodeSchema) -> None:
    def invert(source: str) -> dict[str, Any]:
        return {"class_type": "ImageInvert", "inputs": {"image": [source, 0]}}

    made = graph()
    made |= {"3": invert("4"), "4": invert("3"), "5": invert("5")}
    made |= {f"{n}": invert(f"{n + 1}") for n in range(100, 1100)}
    made["1100"] = invert("100")
    made["2"]["inputs"]["images"] = ["3", 0]
    for node, source in (("6", "5"), ("7", "100")):
        made[node] = {"class_type": "PreviewImage", "inputs": {"images": [source, 0]}}

    found = [
        f for f in check(Workflow.from_api(made, name="w"), schema, all_outputs=True) if f.code == "cycle"
    ]

    assert [(f.node, f.severity) for f in found] == [("3", "error"), ("5", "error"), ("100", "error")]
    assert max(len(f.message) for f in found) < 600


def test_a_wide_and_deep_graph_is_walked(schema: NodeSchema) -> None:
    made = graph()
    for n in range(3, 4000):
        made[str(n)] = {"class_type": "ImageBatch", "inputs": {"image1": [str(n - 2), 0], "image2": ["1", 0]}}
        if n % 2 == 0:  # node 2 gives nothing
            made[str(n)]["inputs"]["image1"] = [str(n - 1), 0]
    made["2"]["inputs"]["images"] = ["3999", 0]

    found = codes(made, schema)
    assert [code for code, *_ in found] == ["dead_node"]
    assert len(json.dumps(found)) < 200


def test_reachable_passes_over_what_is_not_there() -> None:
    assert reachable({"a": ["b", "x"], "b": ["a"], "c": []}, ["a", "y"]) == {"a", "b"}
