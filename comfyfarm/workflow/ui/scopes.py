"""Subgraphs and group nodes unfolded: one scope for the file's graph and one for each instance.

Definitions may be many and nest; a file of a few kilobytes can describe billions of nodes. So depth
and the sum of all nodes are bounded, and nothing here recurses.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from comfyfarm.workflow.findings import Finding, Severity
from comfyfarm.workflow.ui import notes
from comfyfarm.workflow.ui.tree import UiGraph, UiNode, Wire

MAX_DEPTH = 32
"""Scopes inside scopes; real files have 3."""
MAX_UNFOLDED = 50_000
"""Nodes in all instances of subgraphs together; the file's own graph is not counted."""

Definition = Callable[[UiNode], "UiGraph | Finding | None"]
"""What a node stands for: a graph, nothing but itself (None), or why there is none."""


@dataclass(slots=True, eq=False)
class Scope:
    """The file's graph, or one instance of a subgraph."""

    graph: UiGraph
    prefix: str
    """What goes before the ids of its nodes, `19:` or nothing."""
    parent: "Scope | None" = None
    host: UiNode | None = None
    """The instance, a node of the parent."""
    active: bool = True
    is_group: bool = False
    """Whether it is a legacy group node, whose own values every editor runs."""
    children: dict[str, "Scope"] = field(default_factory=dict)
    """The scopes of the instances in here, by node id."""
    broken: set[str] = field(default_factory=set)
    """Ids of instances that could not be unfolded; a finding says why."""
    entries: dict[int, Any] = field(default_factory=dict)
    """Values of the host for slots of the entry."""
    pins: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Values of the host for widgets in here that no slot of the entry leads to, by node and name."""
    firsts: dict[tuple[int, bool], Any] = field(default_factory=dict)
    """Worked out already: what the first widget behind a slot of the entry has inside."""

    def id_of(self, node: UiNode) -> str:
        """The id path of a node in here."""
        return self.prefix + node.id

    def is_active(self, node: UiNode) -> bool:
        """Whether a node in here would run."""
        return self.active and not node.is_off

    def outside(self, slot: int) -> int | None:
        """The place among the host's inputs of a slot of the entry; None when the host has it not."""
        if self.host is None or not 0 <= slot < len(self.graph.inputs):
            return None
        place = input_named(self.host, self.graph.inputs[slot].name)
        if place is None and self.is_group:  # renamed since; the order is the same
            sockets = [at for at, item in enumerate(self.host.inputs) if item.widget is None]
            return sockets[slot] if slot < len(sockets) else None
        return place

    def exit_wire(self, slot: int) -> Wire | None:
        """The wire that ends at a slot of the exit."""
        return exits_of(self.graph).get(slot)


def input_named(node: UiNode, name: str) -> int | None:
    """The place of the first input with this name, or whose widget has it."""
    if node.places is None:
        node.places = {}
        for at, slot in enumerate(node.inputs):
            node.places.setdefault(slot.name, at)
        for at, slot in enumerate(node.inputs):
            node.places.setdefault(slot.widget or "", at)
    return node.places.get(name)


def entry_named(graph: UiGraph, name: str) -> int | None:
    """The slot of the entry that has this name."""
    if graph.entries is None:
        graph.entries = {}
        for at, slot in enumerate(graph.inputs):
            graph.entries.setdefault(slot.name, at)
    return graph.entries.get(name)


def exits_of(graph: UiGraph) -> dict[int, Wire]:
    """The first wire to each slot of the exit: its own list says which, else the order of links."""
    if graph.exits is None:
        found: dict[int, Wire] = {}
        for at, slot in enumerate(graph.outputs):
            for link in slot.links[:1]:
                wire = graph.wires.get(link)
                if wire is not None and wire.target == graph.exit:
                    found[at] = wire
        for wire in graph.wires.values():
            if wire.target == graph.exit:
                found.setdefault(wire.target_slot, wire)
        graph.exits = found
    return graph.exits


def unfold(root: UiGraph, define: Definition, findings: list[Finding]) -> Scope:
    """The scope of the file's graph, with those of all instances below it."""
    top = Scope(root, "")
    waiting = [(top, frozenset({id(root)}), 0)]
    unfolded = 0
    told: set[tuple[int, str]] = set()
    while waiting:
        scope, above, depth = waiting.pop()
        for node in scope.graph.nodes.values():
            found = define(node)
            if found is None:
                continue
            if isinstance(found, UiGraph):
                unfolded += len(found.nodes)
                fault = _fault(found, scope.id_of(node), above, depth, unfolded)
            else:
                # What is off is not opened by the editor either.
                weight = {} if scope.is_active(node) else {"severity": Severity.WARNING}
                fault = found.model_copy(update={"node": scope.id_of(node), **weight})
            if fault is not None:
                scope.broken.add(node.id)
                # Once, however often the definition that holds the node is used.
                if (id(scope.graph), node.id) not in told:
                    findings.append(fault)
                told.add((id(scope.graph), node.id))
            elif isinstance(found, UiGraph):
                child = scope.children[node.id] = _child(scope, node, found)
                waiting.append((child, above | {id(found)}, depth + 1))
            if unfolded > MAX_UNFOLDED:
                # It is refused; what has been unfolded so far would only cost time.
                top.broken.update(top.children)
                top.children.clear()
                return top
    return top


def walk(top: Scope) -> Iterator[tuple[Scope, UiNode]]:
    """Every node of every scope, instances themselves excepted, in the order of the file."""
    waiting: list[tuple[Scope, Iterator[UiNode]]] = [(top, iter(top.graph.nodes.values()))]
    while waiting:
        scope, nodes = waiting[-1]
        node = next(nodes, None)
        if node is None:
            waiting.pop()
        elif node.id in scope.children:
            child = scope.children[node.id]
            waiting.append((child, iter(child.graph.nodes.values())))
        else:
            yield scope, node


def _fault(found: UiGraph, place: str, above: frozenset[int], depth: int, unfolded: int) -> Finding | None:
    if id(found) in above:
        return notes.subgraph_cycle(place, found.name)
    if depth >= MAX_DEPTH:
        return notes.too_deep(place, MAX_DEPTH)
    if unfolded > MAX_UNFOLDED:
        return notes.too_large(place, MAX_UNFOLDED)
    return None


def _child(scope: Scope, node: UiNode, graph: UiGraph) -> Scope:
    return Scope(
        graph=graph,
        prefix=f"{scope.id_of(node)}:",
        parent=scope,
        host=node,
        active=scope.is_active(node),
        is_group=graph.is_group,
    )
