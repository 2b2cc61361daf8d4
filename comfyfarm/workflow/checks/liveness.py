"""What ComfyUI would look at: the outputs of a graph, and the nodes that they need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from comfyfarm.ids import NodeId
from comfyfarm.workflow.checks.walk import reachable
from comfyfarm.workflow.node import Link, Node
from comfyfarm.workflow.schema import NodeSchema

Edges: TypeAlias = Mapping[NodeId, tuple[NodeId, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """A graph with its links followed once, for all checks."""

    by_id: Mapping[NodeId, Node]
    edges: Edges
    outputs: tuple[NodeId, ...]
    """Nodes that ComfyUI runs for their own sake; those of unknown classes may be such."""
    alive: frozenset[NodeId]
    """What the outputs need, themselves included; all nodes when nothing is an output."""


def view_of(nodes: Sequence[Node], schema: NodeSchema) -> View:
    """Follow the links of a graph."""
    edges = edges_of(nodes)
    kinds = {kind for kind in {node.class_type for node in nodes} if may_be_output(kind, schema)}
    outputs = tuple(node.id for node in nodes if node.class_type in kinds)
    alive = reachable(edges, outputs) if outputs else frozenset(edges)
    return View(by_id={node.id: node for node in nodes}, edges=edges, outputs=outputs, alive=alive)


def may_be_output(class_type: str, schema: NodeSchema) -> bool:
    """Whether ComfyUI runs nodes of the class for their own sake, as far as is known."""
    return schema.is_output_node(class_type) or not schema.knows(class_type)


def edges_of(nodes: Iterable[Node]) -> Edges:
    """From each node to those that it takes inputs from, each once."""
    found: dict[NodeId, tuple[NodeId, ...]] = {}
    for node in nodes:
        sources = [value.node for value in node.inputs.values() if type(value) is Link]
        found[node.id] = tuple(sources if len(sources) < 2 else dict.fromkeys(sources))
    return found
