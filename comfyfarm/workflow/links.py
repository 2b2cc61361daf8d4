"""What is wrong with the links of a graph: dangling, out of range, of another shape, in a circle."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.node import Link, Node, Value
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.walk import find_cycles, reachable

Edges: TypeAlias = Mapping[NodeId, tuple[NodeId, ...]]


def link_findings(nodes: Sequence[Node], schema: NodeSchema) -> tuple[Finding, ...]:
    """Errors for links that ComfyUI refuses or takes wrongly; warnings where it looks at nothing."""
    by_id = {node.id: node for node in nodes}
    edges = edges_of(nodes)
    alive = live_nodes(nodes, schema, edges=edges)
    found = [f for node in nodes for f in _links_of(node, by_id, schema)]
    return (*(f if f.node in alive else dead(f) for f in found), *_cycles(edges, alive))


def live_nodes(nodes: Sequence[Node], schema: NodeSchema, *, edges: Edges | None = None) -> frozenset[NodeId]:
    """The nodes that ComfyUI would look at: those that an output node needs, itself included.

    A node of an unknown class may be an output. When nothing is one, all nodes are given.
    """
    roots = [n.id for n in nodes if not schema.knows(n.class_type) or schema.is_output_node(n.class_type)]
    if not roots:
        return frozenset(node.id for node in nodes)
    return reachable(edges_of(nodes) if edges is None else edges, roots)


def edges_of(nodes: Sequence[Node]) -> Edges:
    """From each node to those that it takes inputs from, each once."""
    return {
        node.id: tuple(dict.fromkeys(v.node for v in node.inputs.values() if isinstance(v, Link)))
        for node in nodes
    }


def dead(finding: Finding) -> Finding:
    """The same as a warning, for a node that no output needs: ComfyUI accepts it there."""
    code = "dead_cycle" if finding.code == "cycle" else "dead_node"
    message = f"{finding.message} (no output needs this node, so ComfyUI ignores it)"
    return warning(code, message, finding.remedy, node=finding.node, field=finding.field)


def _links_of(node: Node, by_id: Mapping[NodeId, Node], schema: NodeSchema) -> Iterator[Finding]:
    for name, value in node.inputs.items():
        if isinstance(value, Link):
            yield from _link(node, name, value, by_id, schema)
        elif isinstance(value, tuple) and _was_meant_as_link(node, name, value, by_id, schema):
            shown = json.dumps(value, ensure_ascii=False, default=dict)
            yield error(
                "bad_link_shape",
                f"{shown:.80} is neither a link nor a value that ComfyUI takes",
                'write a link as ["node id", slot number] and a list as {"__value__": [...]}',
                node=node.id,
                field=name,
            )


def _link(
    node: Node, name: str, link: Link, by_id: Mapping[NodeId, Node], schema: NodeSchema
) -> Iterator[Finding]:
    source = by_id.get(link.node)
    if source is None:
        yield error(
            "dangling_link",
            f"{node.class_type} takes it from node {link.node}, which is not in the file",
            "connect it to a node that exists, and export again",
            node=node.id,
            field=name,
        )
    elif link.slot < 0:
        yield error(
            "slot_negative",
            f"takes output {link.slot} of node {link.node}: ComfyUI would count from the end",
            "name the output by its number, from 0",
            node=node.id,
            field=name,
        )
    elif schema.knows(source.class_type) and link.slot >= len(schema.outputs(source.class_type)):
        count = len(schema.outputs(source.class_type))
        yield error(
            "slot_out_of_range",
            f"takes output {link.slot} of node {link.node} ({source.class_type}), which has {count}",
            "connect it to an output that exists",
            node=node.id,
            field=name,
        )


def _was_meant_as_link(
    node: Node, name: str, value: tuple[Value, ...], by_id: Mapping[NodeId, Node], schema: NodeSchema
) -> bool:
    """A list in an input that the schema knows must be a link; elsewhere, if it begins like one."""
    if schema.input(node.class_type, name) is not None:
        return True
    return len(value) > 1 and isinstance(value[0], str) and value[0] in by_id


def _cycles(edges: Edges, alive: frozenset[NodeId]) -> Iterator[Finding]:
    for cycle in find_cycles(edges):
        # The walk goes from node to source; people read the way that data flows.
        flow = [cycle[0], *reversed(cycle[1:])]
        first = min(flow, key=lambda item: (len(item), item))
        turned = flow[flow.index(first) :] + flow[: flow.index(first)]
        found = error(
            "cycle",
            f"a cycle: {' → '.join([*turned, first])}",
            "cut one of these links: a graph has to end somewhere",
            node=first,
        )
        yield found if first in alive else dead(found)
