"""Where an input really comes from: through reroutes, bypassed nodes, and the walls of subgraphs.

Source: `resolveInput` and `resolveOutput` of ExecutableNodeDTO.ts in ComfyUI_frontend.
"""

from dataclasses import dataclass
from typing import Any

from comfyfarm.workflow.editor_nodes import Virtual, virtual_of
from comfyfarm.workflow.ui.scopes import Scope
from comfyfarm.workflow.ui.tree import BYPASSED, MOST_INPUTS, UiNode


@dataclass(frozen=True, slots=True)
class Source:
    """An output of a node that runs, or would if it were not muted."""

    scope: Scope
    node: UiNode
    slot: int


@dataclass(frozen=True, slots=True)
class Typed:
    """A value that somebody typed into a primitive."""

    scope: Scope
    node: UiNode


@dataclass(frozen=True, slots=True)
class Shown:
    """A slot of a subgraph's entry that has nothing linked outside: the instance shows a widget for it."""

    scope: Scope
    slot: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing, and why."""

    why: str
    """`dangling`, `circle`, or `unset`: a GetNode whose name nobody sets."""
    scope: Scope
    node: UiNode
    what: str = ""


End = Source | Typed | Shown | Lost | None
_Step = End | tuple[Scope, UiNode, int, str | None, bool]
"""The end, or where to go on: at an input (True) or output, looking for something of a type."""
_Key = tuple[int, str, int, str | None, bool]


class Wiring:
    """Follows wires through all scopes of one file."""

    def __init__(self) -> None:
        self._setters: dict[int, dict[str, UiNode]] = {}
        self._ends: dict[_Key, End] = {}

    def resolve(self, scope: Scope, node: UiNode, place: int) -> End:
        """What the input at this place of the node gets; None when nothing is linked.

        A step that another walk made already is not made again, so long chains of reroutes cost once.
        """
        step: _Step = (scope, node, place, None, True)
        met: dict[_Key, None] = {}
        end: End = None
        while isinstance(step, tuple):
            at, on, where, kind, is_input = step
            key = id(at), on.id, where, kind, is_input
            if key in self._ends:
                end = self._ends[key]
                break
            if key in met:
                end = Lost("circle", at, on)
                break
            met[key] = None
            step = self._input(at, on, where, kind) if is_input else self._output(at, on, where, kind or "*")
        else:
            end = step
        self._ends.update(dict.fromkeys(met, end))
        return end

    def setter(self, scope: Scope, name: Any) -> "tuple[Scope, UiNode] | None":
        """The SetNode of this name, here or further out."""
        at: Scope | None = scope
        while at is not None and isinstance(name, str):
            known = self._setters.get(id(at.graph))
            if known is None:
                known = self._setters[id(at.graph)] = _setters(at)
            if name in known:
                return at, known[name]
            at = at.parent
        return None

    def _input(self, scope: Scope, node: UiNode, place: int, kind: str | None) -> _Step:
        slot = node.inputs[place]
        kind = kind or slot.type
        if slot.link is None:
            return None
        wire = scope.graph.wires.get(slot.link)
        if wire is None:
            return Lost("dangling", scope, node, slot.link)
        if wire.origin == scope.graph.entry and scope.host is not None and scope.parent is not None:
            outer = scope.outside(wire.origin_slot)
            if outer is None or scope.host.inputs[outer].link is None:
                return Shown(scope, wire.origin_slot)
            return scope.parent, scope.host, outer, None, True
        source = scope.graph.nodes.get(wire.origin)
        if source is None:
            return Lost("dangling", scope, node, slot.link)
        return scope, source, wire.origin_slot, kind, False

    def _output(self, scope: Scope, node: UiNode, slot: int, kind: str) -> _Step:
        role = virtual_of(node.type)
        if role is Virtual.PRIMITIVE:  # the editor has it type its value whatever its mode
            return Typed(scope, node)
        if node.mode == BYPASSED:
            place = passed_through(node, slot, kind)
            return None if place is None else (scope, node, place, None, True)
        child = scope.children.get(node.id)
        if child is not None:
            return self._out_of(scope, child, node, slot, kind)
        if role is None:
            return Source(scope, node, slot)
        if role is Virtual.GET:
            return self._get(scope, node, kind)
        if role in (Virtual.PASS, Virtual.SET) and 0 <= slot < len(node.inputs):
            return scope, node, slot, kind, True
        return None

    def _out_of(self, scope: Scope, child: Scope, host: UiNode, slot: int, kind: str) -> _Step:
        wire = child.exit_wire(slot)
        if wire is None:
            return None
        if wire.origin == child.graph.entry:  # straight through
            outer = child.outside(wire.origin_slot)
            return None if outer is None else (scope, host, outer, None, True)
        inner = child.graph.nodes.get(wire.origin)
        if inner is None:
            return Lost("dangling", child, host, wire.origin)
        return child, inner, wire.origin_slot, kind, False

    def _get(self, scope: Scope, node: UiNode, kind: str) -> _Step:
        name = node.values[0] if isinstance(node.values, list) and node.values else None
        found = self.setter(scope, name)
        if found is None or not found[1].inputs:
            return Lost("unset", scope, node, str(name))
        return *found, 0, kind, True


def passed_through(node: UiNode, slot: int, kind: str) -> int | None:
    """The input that a bypassed node gives on for one of its outputs, by type; None when none fits.

    The input at the output's own place comes first, then the first of exactly the type, then any that fits.
    """
    inputs = node.inputs[:MOST_INPUTS]
    if kind in ("*", ""):
        return slot if 0 <= slot < len(inputs) else (0 if inputs else None)
    output = node.outputs[slot].type if 0 <= slot < len(node.outputs) else "*"
    if 0 <= slot < len(inputs) and fits(inputs[slot].type, output) and fits(inputs[slot].type, kind):
        return slot
    exact = (at for at, item in enumerate(inputs) if item.type == kind)
    loose = (at for at, item in enumerate(inputs) if fits(item.type, output) and fits(item.type, kind))
    return next(exact, next(loose, None))


def fits(one: str, other: str) -> bool:
    """Whether the editor would connect these types; unions are written with commas."""
    if one in ("", "*") or other in ("", "*") or one == other:
        return True
    ones, others = one.lower().split(","), other.lower().split(",")
    return not set(ones).isdisjoint(others)


def _setters(scope: Scope) -> dict[str, UiNode]:
    found: dict[str, UiNode] = {}
    for node in scope.graph.nodes.values():
        if virtual_of(node.type) is Virtual.SET and isinstance(node.values, list) and node.values:
            name = node.values[0]
            if isinstance(name, str):
                found.setdefault(name, node)
    return found
