"""What must never reach a server, since it would hurt everybody who uses it. Pure.

Source: section 9 of the recordings of ComfyUI 0.27.0: a node without `class_type` kills its worker
thread, one without `inputs` breaks its answers, a chain of 900 nodes holds it for a minute.
"""

from collections.abc import Iterator, Mapping
from typing import Any

LONGEST_CHAIN = 900
"""Nodes in a row. The cost of a server's cache keys grows with the cube; 3,000 overflow its stack."""


def why_not(graph: Mapping[str, Any]) -> str | None:
    """Why this graph is not sent, in one line; None when it may be."""
    fault = next(_shape_faults(graph), None)
    if fault is not None:
        return fault
    length = longest_chain(graph)
    if length > LONGEST_CHAIN:
        return (
            f"{length} nodes depend on one another in a row; a server is held up for over a minute by more "
            f"than {LONGEST_CHAIN}: split the workflow"
        )
    return None


def _shape_faults(graph: Mapping[str, Any]) -> Iterator[str]:
    if not graph:
        yield "the graph has no nodes"
    for name, node in graph.items():
        if not isinstance(node, Mapping):
            yield f"node {name} is no object"
        elif not isinstance(node.get("class_type"), str) or not node["class_type"]:
            yield f"node {name} has no class_type"
        elif not isinstance(node.get("inputs"), Mapping):
            yield f"node {name} {node['class_type']} has no inputs object"


def longest_chain(graph: Mapping[str, Any]) -> int:
    """How many nodes the longest chain of links has. Nodes on a cycle count as none."""
    feeds: dict[str, list[str]] = {}
    waits = dict.fromkeys(graph, 0)
    for name, node in graph.items():
        for source in _sources(node, graph):
            feeds.setdefault(source, []).append(name)
            waits[name] += 1
    depth = {name: 1 for name, count in waits.items() if count == 0}
    ready = list(depth)
    while ready:
        name = ready.pop()
        for follower in feeds.get(name, ()):
            depth[follower] = max(depth.get(follower, 0), depth[name] + 1)
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    return max(depth.values(), default=0)


def _sources(node: Mapping[str, Any], graph: Mapping[str, Any]) -> Iterator[str]:
    for value in node["inputs"].values():
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and value[0] in graph:
            yield value[0]
