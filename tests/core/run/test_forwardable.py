"""What is never sent: graphs that would hurt a server for everybody."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.run.forwardable import LONGEST_CHAIN, longest_chain, why_not


def chain(length: int) -> dict[str, Any]:
    """`length` nodes in a row."""
    return {
        str(n): {"class_type": "ImageBlur", "inputs": {"image": [str(n - 1), 0]} if n else {}}
        for n in range(length)
    }


@pytest.mark.parametrize(
    ("graph", "fault"),
    [
        ({}, "the graph has no nodes"),
        ({"1": "text"}, "node 1 is no object"),
        ({"1": {"inputs": {}}}, "node 1 has no class_type"),
        ({"1": {"class_type": None, "inputs": {}}}, "node 1 has no class_type"),
        ({"7": {"class_type": "VAEDecode"}}, "node 7 VAEDecode has no inputs object"),
        ({"7": {"class_type": "VAEDecode", "inputs": []}}, "node 7 VAEDecode has no inputs object"),
    ],
)
def test_a_graph_that_kills_a_worker_is_named(graph: dict[str, Any], fault: str) -> None:
    assert why_not(graph) == fault


def test_a_chain_may_be_long_but_not_too_long() -> None:
    assert why_not(chain(LONGEST_CHAIN)) is None
    said = why_not(chain(LONGEST_CHAIN + 1))
    assert said is not None
    assert f"{LONGEST_CHAIN + 1} nodes depend on one another" in said


def test_a_wide_graph_is_no_long_one() -> None:
    graph = chain(3) | {
        str(n): {"class_type": "SaveImage", "inputs": {"images": ["2", 0]}} for n in range(9, 5000)
    }

    assert longest_chain(graph) == 4
    assert why_not(graph) is None


def test_a_cycle_ends_the_count() -> None:
    graph = chain(2) | {"0": {"class_type": "ImageBlur", "inputs": {"image": ["1", 0]}}}

    assert longest_chain(graph) == 0


@given(st.integers(1, 60), st.randoms())
def test_the_order_of_the_nodes_changes_nothing(length: int, random: Any) -> None:
    items = list(chain(length).items())
    random.shuffle(items)

    assert longest_chain(dict(items)) == length
