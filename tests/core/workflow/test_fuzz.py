"""Broken files: twenty seconds of `make fuzz`, always the same ones, and trees that hypothesis thinks of."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyfarm.workflow.schema import NodeSchema
from infra.fuzz import fault, fuzz

# Where hypothesis tells of a strategy by its text, ours are long.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

SEED, SECONDS = 20_261_130, 20

NAMES = st.sampled_from(
    ["KSampler", "VAELoader", "SaveImage", "Reroute", "PrimitiveNode", "SetNode", "GetNode", "workflow>a",
     "CLIPTextEncode", "LoraLoader", "Power Lora Loader (rgthree)", "NoSuchClass",
     "12345678-1234-1234-1234-123456789abc"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | NAMES
KEYS = st.sampled_from(
    ["id", "type", "inputs", "outputs", "link", "links", "widgets_values", "mode", "widget", "name",
     "properties", "proxyWidgets", "models", "nodes", "slot_index"]
) | st.text(max_size=5)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
IDS = st.integers(-12, 6) | TREES
SLOTS = st.fixed_dictionaries({}, optional={"name": TREES, "link": IDS, "widget": TREES})
UI_NODES = st.fixed_dictionaries(
    {"id": IDS, "type": NAMES | TREES},
    optional={
        "inputs": st.lists(SLOTS, max_size=3) | TREES,
        "outputs": TREES,
        "mode": st.sampled_from([0, 2, 4]) | TREES,
        "widgets_values": TREES,
        "properties": TREES,
    },
)
LINKS = st.lists(IDS, min_size=6, max_size=6) | TREES
SUBGRAPHS = st.fixed_dictionaries(
    {
        "id": st.just("12345678-1234-1234-1234-123456789abc") | TREES,
        "nodes": st.lists(UI_NODES, max_size=3),
        "links": st.lists(LINKS, max_size=3),
    },
    optional={"inputs": TREES, "outputs": TREES, "inputNode": TREES},
)
DEFINITIONS = st.fixed_dictionaries({"subgraphs": st.lists(SUBGRAPHS, max_size=2)})
UI_GRAPHS = st.fixed_dictionaries(
    {"nodes": st.lists(UI_NODES, max_size=5), "links": st.lists(LINKS, max_size=5)},
    optional={"extra": TREES, "version": TREES, "definitions": DEFINITIONS | TREES},
)
API_NODES = st.fixed_dictionaries({"class_type": NAMES | TREES}, optional={"inputs": TREES, "_meta": TREES})
API_GRAPHS = st.dictionaries(st.text(max_size=3), API_NODES | TREES, max_size=5)


@pytest.mark.timeout(180)
def test_every_broken_file_is_a_report() -> None:
    tried, failure = fuzz(seconds=SECONDS, seed=SEED)

    assert failure is None, f"seed {failure.seed}, from {failure.source}:\n{failure.why}"
    assert tried > 100


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=UI_GRAPHS | API_GRAPHS | TREES)
def test_every_tree_is_a_report(schema: NodeSchema, graph: Any) -> None:
    why = fault(json.dumps(graph).encode(), schema)

    assert why is None, why


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_all_bytes_are_a_report(schema: NodeSchema, data: bytes) -> None:
    assert fault(data, schema) is None
