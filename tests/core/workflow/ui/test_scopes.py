"""Bounds: definitions that contain themselves, nest without end, or multiply."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.ui.convert import Converted
from comfyfarm.workflow.ui.scopes import MAX_DEPTH

Run = Callable[..., Converted]
Make = Callable[..., Any]


def key(number: int) -> str:
    return f"{number:08x}-840a-4c81-927e-6929224c69b5"


def errors(made: Converted) -> list[str]:
    return [f.code for f in made.findings if str(f.severity) == "error"]


def test_f10_definitions_that_contain_each_other_are_a_cycle(run: Run, node: Make, subgraph: Make) -> None:
    definitions = [
        subgraph(key(1), [node(1, key(2)), node(5, "EmptyImage", 1, 1, 1, 0)], []),
        subgraph(key(2), [node(1, key(1))], []),
    ]
    made = run({"nodes": [node(4, key(1))], "links": [], "definitions": {"subgraphs": definitions}})

    assert errors(made) == ["subgraph_cycle"]
    assert list(made.graph) == ["4:5"]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 3000])
def test_nesting_is_bounded(run: Run, node: Make, subgraph: Make, depth: int) -> None:
    definitions = [subgraph(key(at), [node(1, key(at + 1))], []) for at in range(1, depth)]
    definitions.append(subgraph(key(depth), [node(1, "EmptyImage", 1, 1, 1, 0)], []))
    made = run({"nodes": [node(1, key(1))], "links": [], "definitions": {"subgraphs": definitions}})

    assert errors(made) == ([] if depth <= MAX_DEPTH else ["subgraph_too_deep"])


def test_a_bomb_of_definitions_is_refused_at_once(run: Run, node: Make, subgraph: Make) -> None:
    definitions = [subgraph(key(at), [node(n, key(at + 1)) for n in range(10)], []) for at in range(1, 20)]
    definitions.append(subgraph(key(20), [], []))
    tree = {"nodes": [node(1, key(1))], "links": [], "definitions": {"subgraphs": definitions}}
    begun = time.process_time()
    made = run(tree)

    assert errors(made) == ["subgraph_too_large"]
    assert made.graph == {}
    assert time.process_time() - begun < 5


def test_a_long_chain_of_reroutes_costs_once(run: Run, node: Make) -> None:
    count = 4000
    nodes = [node(0, "EmptyImage", 1, 1, 1, 0, outputs=["IMAGE"])]
    nodes += [node(at, "Reroute", inputs={"": ("*", at)}, outputs=["*"]) for at in range(1, count)]
    nodes += [node(count + at, "PreviewImage", inputs={"images": ("IMAGE", count)}) for at in range(count)]
    links = [[at, at - 1, 0, at, 0, "IMAGE"] for at in range(1, count)]
    links.append([count, count - 1, 0, count, 0, "IMAGE"])
    begun = time.process_time()
    made = run({"nodes": nodes, "links": links})

    assert all(made.graph[str(count + at)]["inputs"] == {"images": ["0", 0]} for at in range(count))
    # Each consumer walking the whole chain would be sixteen million steps.
    assert time.process_time() - begun < 5


def test_reroutes_in_a_circle_are_told(run: Run, node: Make) -> None:
    nodes = [
        node(1, "Reroute", inputs={"": ("*", 2)}, outputs=["*"]),
        node(2, "Reroute", inputs={"": ("*", 1)}, outputs=["*"]),
        node(3, "PreviewImage", inputs={"images": ("IMAGE", 3)}),
    ]
    made = run({"nodes": nodes, "links": [[1, 1, 0, 2, 0, "*"], [2, 2, 0, 1, 0, "*"], [3, 2, 0, 3, 0, "*"]]})

    assert made.graph["3"]["inputs"] == {}
    assert [(f.code, f.node, f.field) for f in made.findings] == [("ui_link_cycle", "3", "images")]


def test_what_is_wrong_in_a_definition_is_told_once(run: Run, node: Make, subgraph: Make) -> None:
    definitions = [subgraph(key(1), [node(1, key(2))], [])]
    tree = {
        "nodes": [node(at, key(1)) for at in range(5)],
        "links": [],
        "definitions": {"subgraphs": definitions},
    }
    made = run(tree)

    assert [(f.code, f.node) for f in made.findings] == [("missing_subgraph", "4:1")]
