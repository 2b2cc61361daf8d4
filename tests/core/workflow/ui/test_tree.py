"""No JSON tree makes the converter fall over."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import convert
from comfyfarm.workflow.ui.plain import id_of, number

# Where hypothesis tells of a strategy by its text, ours are long.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

SCHEMA = NodeSchema.shipped()
KINDS = ["KSampler", "Reroute", "PrimitiveNode", "SetNode", "GetNode", "CustomCombo", "Load3D", "Odd", "Note"]
KINDS += ["workflow>G", "7db92ebb-840a-4c81-927e-6929224c69b5", "ResizeImageMaskNode", "ImageCompare"]

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(KINDS)
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ids = st.integers(-21, 5) | anything
slots = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["", "model", "seed", "vae_name"]) | anything,
        "type": st.sampled_from(["*", "IMAGE", "INT,FLOAT"]) | anything,
        "link": ids,
        "links": st.lists(ids, max_size=3) | anything,
        "linkIds": st.lists(ids, max_size=3) | anything,
        "widget": st.fixed_dictionaries({"name": st.just("seed") | anything}) | anything,
    },
)
nodes = st.fixed_dictionaries(
    {"id": ids, "type": st.sampled_from(KINDS) | anything},
    optional={
        "mode": st.sampled_from([0, 2, 4]) | anything,
        "inputs": st.lists(slots | anything, max_size=4) | anything,
        "outputs": st.lists(slots | anything, max_size=3) | anything,
        "widgets_values": st.lists(anything, max_size=8) | anything,
        "widgets_values_named": anything,
        "title": anything,
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "proxyWidgets": st.lists(st.lists(anything, max_size=3)) | anything,
                "models": anything,
            },
        )
        | anything,
    },
)
links = st.lists(ids, min_size=5, max_size=6) | anything
graphs = {
    "nodes": st.lists(nodes | anything, max_size=6) | anything,
    "links": st.lists(links, max_size=6) | anything,
    "inputs": st.lists(slots, max_size=3) | anything,
    "outputs": st.lists(slots, max_size=3) | anything,
    "extra": st.fixed_dictionaries(
        {},
        optional={
            "ue_links": anything,
            "groupNodes": st.dictionaries(
                st.sampled_from(["G"]),
                st.fixed_dictionaries(
                    {"nodes": st.lists(nodes | anything, max_size=3), "links": st.lists(links, max_size=3)},
                    optional={"external": anything, "config": anything},
                )
                | anything,
            ),
        },
    )
    | anything,
}
definitions = st.fixed_dictionaries({**graphs, "id": st.sampled_from(KINDS) | anything})
trees = st.fixed_dictionaries(
    graphs,
    optional={
        "definitions": st.fixed_dictionaries({"subgraphs": st.lists(definitions | anything, max_size=3)})
        | anything,
        "models": anything,
        "last_node_id": anything,
    },
)


@given(trees, st.sampled_from(["1.45", "1.58"]))
@settings(max_examples=300)
def test_no_tree_raises_and_the_graph_is_json(tree: dict[str, Any], editor: Any) -> None:
    before = repr(tree)
    made = convert(tree, SCHEMA, editor=editor)

    json.dumps(made.graph)
    assert all(str(finding) and len(str(finding)) < 1000 for finding in made.findings)
    assert {node.id for node in made.nodes if node.active} >= set(made.graph)
    assert repr(tree) == before


@given(st.data())
@settings(max_examples=60)
def test_no_damage_to_a_real_file_raises(tricky: Callable[[str], Any], data: st.DataObject) -> None:
    tree = tricky(data.draw(st.sampled_from(["e0_", "e3", "e9", "e24"])))
    for _ in range(data.draw(st.integers(1, 6))):
        at: Any = tree
        while isinstance(at, dict | list) and at:
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
            if data.draw(st.integers(0, 4)) == 0 or not isinstance(at[key], dict | list):
                at[key] = data.draw(anything)
                break
            at = at[key]

    json.dumps(convert(tree, SCHEMA).graph)


def test_ids_and_slots_of_every_kind() -> None:
    no_ids: list[Any] = [None, True, "", float("nan"), float("inf"), [], 10**400, "x" * 500]
    no_slots: list[Any] = [-1, True, None, 1.0, "x", 10**30]

    assert [id_of(value) for value in (7, "7", 7.0, "a:b", -10)] == ["7", "7", "7", "a:b", "-10"]
    assert [id_of(value) for value in no_ids] == [None] * 8
    assert [id_of(value) for value in (2**64, 10**199, 1.5, 1e300)] == [
        "18446744073709551616", f"1{'0' * 199}", "1.5", "1e+300",
    ]  # fmt: skip
    assert id_of("x" * 200) == "x" * 200
    assert [number(value) for value in (3, "3")] == [3, 3]
    assert [number(value) for value in no_slots] == [-1] * 6
