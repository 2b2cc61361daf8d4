"""Legacy group nodes (`workflow>Name`), read as if they were subgraphs.

The template in `extra.groupNodes` has no inputs and outputs of its own: the editor makes them up, and
names them, from what its nodes leave unlinked. The values of the instance stand in that order too.
Source: `GroupNodeConfig` in ComfyUI_frontend's src/extensions/core/groupNode.ts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyfarm.workflow.editor_nodes import PRIMITIVE, REROUTE
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.ui.placing import is_after_seed
from comfyfarm.workflow.ui.plain import listed, number
from comfyfarm.workflow.ui.tree import MOST_INPUTS, Slot, UiGraph, UiNode, Wire, read_node
from comfyfarm.workflow.ui.widgets import WidgetNames

WHOLE = "*"
"""Stands for all values of a node whose class is not known, in their order."""


@dataclass(frozen=True, slots=True)
class GroupWidget:
    """One widget of the group node: which node and input inside has its value."""

    node: str
    input: str
    size: int
    """How many values it takes; more than one for a node whose class is not known."""
    has_control: bool


@dataclass(slots=True)
class Group:
    """A template as a graph, with its widgets in the order of an instance's values."""

    graph: UiGraph
    widgets: list[GroupWidget] = field(default_factory=list)

    def values(self, values: Sequence[Any]) -> dict[tuple[str, str], Any]:
        """An instance's values by node and input inside."""
        found: dict[tuple[str, str], Any] = {}
        at = 0
        for widget in self.widgets:
            if at >= len(values):
                break
            taken = values[at] if widget.input != WHOLE else list(values[at : at + widget.size])
            found[widget.node, widget.input] = taken
            at += widget.size
            if widget.has_control and at < len(values) and is_after_seed(values[at]):
                at += 1
        return found


def read_group(raw: Mapping[str, Any], *, name: str, names: WidgetNames) -> Group:
    """The group in an entry of `extra.groupNodes`."""
    return _Builder(raw, name, names).build()


class _Builder:
    def __init__(self, raw: Mapping[str, Any], name: str, names: WidgetNames) -> None:
        self._names = names
        self._graph = UiGraph(name=name, is_group=True)
        self._group = Group(self._graph)
        self._config = raw.get("config") if isinstance(raw.get("config"), Mapping) else {}
        for at, item in enumerate(listed(raw.get("nodes"))):
            node = read_node(item if isinstance(item, Mapping) else {}, str(at))
            for slot in node.inputs:
                slot.link = None
            self._graph.nodes[node.id] = node
        self._outside: set[tuple[str, int]] = set()
        for item in listed(raw.get("external")):
            if isinstance(item, list) and len(item) >= 2:
                # Some files hold the whole node where the others hold its place.
                node_at = item[0].get("index") if isinstance(item[0], Mapping) else item[0]
                self._outside.add((str(number(node_at)), number(item[1])))
        self._used: set[tuple[str, int]] = set()
        for item in listed(raw.get("links")):
            self._link(item)
        self._seen: dict[str, int] = {}
        self._flows: dict[str, str] = {}
        self._later: list[tuple[UiNode, int]] = []

    def build(self) -> Group:
        for node in self._graph.nodes.values():
            self._widgets(node)
            self._sockets(node)
            self._outputs(node)
        for node, at in self._later:
            slot = node.inputs[at]
            name = self._entry(node, at, slot.widget or slot.name)
            self._group.widgets.append(GroupWidget(node.id, name, 1, _controls(self._spec(node, name)) > 0))
        return self._group

    def _link(self, raw: Any) -> None:
        if not isinstance(raw, list) or len(raw) < 4:
            return
        origin, target = str(number(raw[0])), str(number(raw[2]))
        slot, place = number(raw[1]), number(raw[3])
        node = self._graph.nodes.get(target)
        if origin not in self._graph.nodes or node is None or not 0 <= place < MOST_INPUTS:
            return
        while len(node.inputs) <= place:
            node.inputs.append(Slot(self._socket_name(node), "*", None, (), None, None))
        self._used.add((origin, slot))
        self._wire(Wire(origin, slot, target, place), node)

    def _wire(self, wire: Wire, node: UiNode) -> str:
        link = f"in{len(self._graph.wires)}"
        self._graph.wires[link] = wire
        node.inputs[wire.target_slot].link = link
        return link

    def _socket_name(self, node: UiNode) -> str:
        """The next input with a socket that the template does not list."""
        have = {slot.name for slot in node.inputs}
        known = (spec.name for spec in self._names.sockets(node.type) if spec.name not in have)
        return next(known, f"input{len(node.inputs)}")

    def _widgets(self, node: UiNode) -> None:
        if node.type == PRIMITIVE:
            self._primitive(node)
            return
        layout = self._names.layout(node.type)
        if not self._names.knows(node.type):
            if isinstance(node.values, list) and node.values:
                self._group.widgets.append(GroupWidget(node.id, WHOLE, len(node.values), has_control=False))
            return
        converted = {slot.widget for slot in node.inputs if slot.widget}
        for spec in _had(layout, node, converted):
            if spec.is_widget and spec.name not in converted:
                self._name(node, spec.name)
                self._group.widgets.append(GroupWidget(node.id, spec.name, 1, spec.controls > 0))

    def _primitive(self, node: UiNode) -> None:
        if (node.id, 0) in self._used:
            self._name(node, "value")
            size = len(node.values) if isinstance(node.values, list) else 1
            self._group.widgets.append(GroupWidget(node.id, "value", 1, has_control=size != 1))

    def _sockets(self, node: UiNode) -> None:
        if node.type == PRIMITIVE:
            return
        if node.type == REROUTE and not node.inputs:
            node.inputs.append(Slot("", "*", None, (), None, None))
        have = {slot.name for slot in node.inputs}
        for spec in self._names.sockets(node.type):
            if spec.name not in have:
                node.inputs.append(Slot(spec.name, spec.type, None, (), None, None))
        # Converted widgets come last; the editor sorts their places as text.
        places = [at for at, slot in enumerate(node.inputs) if slot.link is None]
        self._later += [(node, at) for at in sorted(places, key=str) if node.inputs[at].widget is not None]
        for at in places:
            if node.inputs[at].widget is None:
                name = self._flowing(node) if node.type == REROUTE else node.inputs[at].name
                self._entry(node, at, name)

    def _flowing(self, node: UiNode) -> str:
        """The type of what goes through a reroute, by which its input is named."""
        if not self._flows:
            for wire in self._graph.wires.values():
                target = self._graph.nodes.get(wire.target)
                kind = "*" if target is None else target.inputs[wire.target_slot].type
                if kind != "*":
                    self._flows.setdefault(wire.origin, kind)
        return self._flows.get(node.id, "*")

    def _entry(self, node: UiNode, at: int, name: str) -> str:
        """An input of the group that leads to this one; returns the inner name."""
        outer = self._name(node, name)
        is_hidden = self._custom(node, "input", name).get("visible") is False
        if is_hidden and node.inputs[at].widget is None:
            return name
        place = len(self._graph.inputs)
        link = self._wire(Wire(self._graph.entry, place, node.id, at), node)
        self._graph.inputs.append(Slot(outer, node.inputs[at].type, None, (link,), None, None))
        return name

    def _outputs(self, node: UiNode) -> None:
        given = self._names.outputs(node.type)
        count = len(given) if given else len(node.outputs)
        for slot in range(count if node.type != PRIMITIVE else 0):
            if (node.id, slot) in self._used and (node.id, slot) not in self._outside:
                continue
            if self._custom(node, "output", str(slot)).get("visible") is False:
                continue
            place = len(self._graph.outputs)
            link = f"out{place}"
            self._graph.wires[link] = Wire(node.id, slot, self._graph.exit, place)
            kind = given[slot] if given else node.outputs[slot].type
            self._graph.outputs.append(Slot("", kind, None, (link,), None, None))

    def _name(self, node: UiNode, name: str) -> str:
        """The name that the group gives to an input of one of its nodes."""
        label = next((slot.label for slot in node.inputs if slot.name == name and slot.label), None)
        custom = self._custom(node, "input", name).get("name")
        found = key = custom if isinstance(custom, str) and custom else label or name
        if found in self._seen or (node.type == PRIMITIVE and node.title):
            prefix = f"{node.title or node.type} "
            found = key = prefix + name
            if found in self._seen:
                found = f"{prefix}{self._seen[found]} {name}"
        self._seen[key] = self._seen.get(key, 1) + 1
        return found

    def _custom(self, node: UiNode, kind: str, name: str) -> Mapping[str, Any]:
        found: Any = self._config
        for key in (node.id, kind, name):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def _spec(self, node: UiNode, name: str) -> InputSpec | None:
        return next((spec for spec in self._names.layout(node.type) if spec.name == name), None)


def _had(layout: Sequence[InputSpec], node: UiNode, converted: Collection[str]) -> list[InputSpec]:
    """The widgets that the class had when the template was made: those that it lists or has values for."""
    values = node.values if isinstance(node.values, list) else []
    listed_size = sum(1 + spec.controls for spec in layout if spec.name in converted)
    if converted and listed_size >= len(values):
        return []
    had: list[InputSpec] = []
    size = 0
    for spec in layout:
        if values and size >= len(values):
            break
        had.append(spec)
        size += 1 + spec.controls
    return had


def _controls(spec: InputSpec | None) -> int:
    return spec.controls if spec is not None else 0
