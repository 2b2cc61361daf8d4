"""Widgets of nodes inside a subgraph that its instances show, with values of their own.

Three forms are in files: `properties.proxyWidgets` with the inner node's id, the same with the id -1
for an input of the subgraph, and none, where each input that leads to a widget has one. Editors
before 1.58 run the value inside, later ones that of the instance.
Source: SubgraphNode.ts and proxyWidgetMigration.ts of ComfyUI_frontend.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from comfyfarm.workflow.editor_nodes import PRIMITIVE
from comfyfarm.workflow.ui.placing import is_control
from comfyfarm.workflow.ui.plain import id_of, listed
from comfyfarm.workflow.ui.scopes import Scope, entry_named, input_named
from comfyfarm.workflow.ui.tree import UiGraph, UiNode
from comfyfarm.workflow.ui.widgets import WidgetNames

_PREFIXED = re.compile(r"^\s*(\d+)\s*:\s*(.+)$", re.DOTALL)
_LONGEST_NAME = 1000
_LONGEST_LIST = 100_000


class _Missing:
    """The type of MISSING."""


MISSING: Final = _Missing()
"""No value; None is one."""


class Hosts:
    """What instances of subgraphs say about widgets inside of them."""

    def __init__(self, names: WidgetNames) -> None:
        self._names = names

    def read(self, scope: Scope) -> None:
        """Take the values of the scope's host apart; a group node's are there already."""
        host = scope.host
        if host is None or scope.is_group:
            return
        by_name = host.values if isinstance(host.values, dict) else host.by_name
        if by_name is not None:
            self._by_name(scope, by_name)
            return
        if isinstance(host.values, dict):
            return
        proxies = [item for item in _listed_proxies(host) if isinstance(item, list)]
        if proxies:
            for item, value in zip(proxies, host.values, strict=False):
                self._proxy(scope, item, value)
        elif host.values:
            self._by_entry(scope, host.values)

    def value(self, scope: Scope, slot: int, *, is_inner: bool) -> Any:
        """What the host shows for a slot of the entry where nothing is linked; or MISSING.

        `is_inner`: as editors before 1.58 have it, from inside.
        """
        if scope.is_group or not is_inner:
            host, parent, known = scope.host, scope.parent, scope.graph.inputs
            if host is not None and parent is not None and 0 <= slot < len(known):
                pinned = parent.pins.get((host.id, known[slot].name), MISSING)
                if pinned is not MISSING:
                    return pinned
            if slot in scope.entries:
                return scope.entries[slot]
        return self._first(scope, slot, is_inner=is_inner)

    def _first(self, scope: Scope, slot: int, *, is_inner: bool) -> Any:
        """What the first widget behind a slot of the entry has inside."""
        key = slot, is_inner
        if key not in scope.firsts:
            scope.firsts[key] = MISSING  # for circles
            for node, place in entered(scope.graph, slot):
                found = self._inside(scope, node, place, is_inner=is_inner)
                if found is not MISSING:
                    scope.firsts[key] = found
                    break
        return scope.firsts[key]

    def _inside(self, scope: Scope, node: UiNode, place: int, *, is_inner: bool) -> Any:
        name = node.inputs[place].name
        child = scope.children.get(node.id)
        if child is not None:
            at = entry_named(child.graph, name)
            return MISSING if at is None else self.value(child, at, is_inner=is_inner)
        if node.id in scope.broken or not self._names.takes_value(node, node.inputs[place]):
            return MISSING
        if (scope.is_group or not is_inner) and (node.id, name) in scope.pins:
            return scope.pins[node.id, name]
        values = self._names.of(node).values
        return values.get(node.inputs[place].widget or name, MISSING)

    def _by_name(self, scope: Scope, values: Mapping[str, Any]) -> None:
        for at, slot in enumerate(scope.graph.inputs):
            if values.get(slot.name) is not None:
                scope.entries[at] = values[slot.name]

    def _by_entry(self, scope: Scope, values: list[Any]) -> None:
        shown = [at for at in range(len(scope.graph.inputs)) if self._leads_to_widget(scope, at)]
        has_controls = len(values) > len(shown)
        place = 0
        for at in shown:
            if place >= len(values):
                return
            if values[place] is not None:  # a hole
                scope.entries[at] = values[place]
            place += 1
            if has_controls and place < len(values) and is_control(values[place]):
                place += 1

    def _leads_to_widget(self, scope: Scope, slot: int) -> bool:
        # The file's editor wrote the values, and it may have known widgets that the schema does not.
        ends = entered(scope.graph, slot)
        is_said = any(node.inputs[at].widget is not None for node, at in ends)
        return is_said or self._first(scope, slot, is_inner=True) is not MISSING

    def _proxy(self, scope: Scope, item: list[Any], value: Any) -> None:
        if value is None or len(item) < 2 or not isinstance(item[1], str) or len(item[1]) > _LONGEST_NAME:
            return
        node_id, name = id_of(item[0]), item[1]
        if node_id is None or name == "control_after_generate" or name.startswith("$$"):
            return
        if node_id == "-1":
            at = entry_named(scope.graph, name)
            if at is not None:
                scope.entries[at] = value
            return
        node = scope.graph.nodes.get(node_id)
        if node is not None:
            self._pin(scope, node, name, value)

    def _pin(self, scope: Scope, node: UiNode, name: str, value: Any) -> None:
        """The widget of a node in here: by the slot that leads to it, else by itself."""
        while (match := _PREFIXED.match(name)) and input_named(node, name) is None:
            name = match[2]
        place = input_named(node, name)
        link = node.inputs[place].link if place is not None else None
        wire = scope.graph.wires.get(link) if link is not None else None
        if wire is not None and wire.origin == scope.graph.entry:
            scope.entries[wire.origin_slot] = value
            return
        child = scope.children.get(node.id)
        if child is not None and entry_named(child.graph, name) is None:
            name = _shown(child.graph).get(name, name)
        scope.pins[node.id, "value" if node.type == PRIMITIVE else name] = value


def _listed_proxies(host: UiNode) -> list[Any]:
    """`proxyWidgets`, which may also be JSON inside a text."""
    found = host.properties.get("proxyWidgets")
    if isinstance(found, str) and len(found) < _LONGEST_LIST:
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            return []
    return listed(found)


def _shown(graph: UiGraph) -> dict[str, str]:
    """The names of slots of the entry, by the name of the first widget that they lead to."""
    if graph.shown is None:
        graph.shown = {}
        for at, slot in enumerate(graph.inputs):
            for node, place in entered(graph, at)[:1]:
                graph.shown.setdefault(node.inputs[place].widget or node.inputs[place].name, slot.name)
    return graph.shown


def entered(graph: UiGraph, slot: int) -> list[tuple[UiNode, int]]:
    """The inputs that a slot of the entry leads to, in the order of the slot's own list."""
    if graph.entered is None:
        graph.entered = {}
        ends = {slot.link: (node, at) for node in graph.nodes.values() for at, slot in enumerate(node.inputs)}
        listed_links = [(at, link) for at, item in enumerate(graph.inputs) for link in item.links]
        others = [
            (wire.origin_slot, link) for link, wire in graph.wires.items() if wire.origin == graph.entry
        ]
        for at, link in dict.fromkeys([*listed_links, *others]):
            if link in ends and link in graph.wires:
                graph.entered.setdefault(at, []).append(ends[link])
    return graph.entered.get(slot, [])
