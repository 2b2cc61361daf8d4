"""The inputs of one node: its own values, then what hosts say, then what is linked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comfyfarm.workflow.file_node import WIDGETS
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.ui import notes
from comfyfarm.workflow.ui.groups import WHOLE
from comfyfarm.workflow.ui.promoted import MISSING, Hosts
from comfyfarm.workflow.ui.scopes import Scope
from comfyfarm.workflow.ui.tree import Slot, UiNode
from comfyfarm.workflow.ui.widgets import WidgetNames
from comfyfarm.workflow.ui.wires import End, Lost, Shown, Source, Typed, Wiring


@dataclass(slots=True)
class Inputs:
    """What one node gets."""

    values: dict[str, Any]
    """In API format: links are `[id, slot]`, lists of a value's own `{"__value__": […]}`."""
    others: dict[str, Any] = field(default_factory=dict)
    """What an editor of the other age would run instead."""
    rest: list[Any] = field(default_factory=list)
    """Values of a known class that no input takes."""
    dropped: list[str] = field(default_factory=list)
    """Linked inputs that the chosen option of a dynamic combo does not have."""
    odd: set[str] = field(default_factory=set)
    """Inputs whose own values they cannot take."""
    findings: list[Finding] = field(default_factory=list)


class InputReader:
    """Reads the inputs of nodes, as one age of editor does."""

    def __init__(self, names: WidgetNames, wiring: Wiring, hosts: Hosts, *, is_inner: bool) -> None:
        self._names = names
        self._wiring = wiring
        self._hosts = hosts
        self._is_inner = is_inner

    def read(self, scope: Scope, node: UiNode) -> Inputs:
        """All inputs of a node that is no instance."""
        whole = scope.pins.get((node.id, WHOLE)) if scope.pins else None
        # In a group node, the values of a class that is not known: by place, those of the instance.
        named = self._names.of(node if whole is None else replace(node, values=whole, by_name=None))
        found = Inputs({name: wrapped(value) for name, value in named.values.items()}, odd=set(named.odd))
        if named.rest and self._names.knows(node.type):
            found.rest = list(named.rest)
        elif named.rest:
            found.values[WIDGETS] = {"__value__": list(named.rest)}
        if scope.pins:
            self._pin(scope, node, found)
        for place, slot in enumerate(node.inputs):
            if slot.link is not None and self._is_there(node, slot, found):
                found.odd.discard(slot.name)
                self._link(scope, node, place, self._wiring.resolve(scope, node, place), found)
        return found

    def _pin(self, scope: Scope, node: UiNode, found: Inputs) -> None:
        for name in list(found.values):
            pinned = scope.pins.get((node.id, name), MISSING)
            if pinned is MISSING:
                continue
            own = found.values[name]
            if scope.is_group:
                found.values[name] = wrapped(pinned)
            else:
                self._decide(scope, node, name, host=pinned, inner=own, found=found)

    def _is_there(self, node: UiNode, slot: Slot, found: Inputs) -> bool:
        """The editor takes an input away whose widget the class does not have."""
        if not slot.name or not self._names.knows(node.type):
            return bool(slot.name)
        if "." in slot.name and self._names.is_unchosen(node.type, slot.name, found.values):
            found.dropped.append(slot.name)
            return False
        return (
            slot.widget is None or slot.widget in found.values or self._names.has_input(node.type, slot.name)
        )

    def _link(self, scope: Scope, node: UiNode, place: int, end: End, found: Inputs) -> None:
        slot = node.inputs[place]
        match end:
            case Source(origin_scope, origin, number):
                is_gone = origin.id in origin_scope.broken or not origin_scope.is_active(origin)
                found.values.pop(slot.name, None)
                if not is_gone:
                    found.values[slot.name] = [origin_scope.id_of(origin), number]
            case Typed(origin_scope, primitive):
                value = _typed(origin_scope, primitive)
                if value is not MISSING and self._names.takes_value(node, slot):
                    found.values[slot.name] = wrapped(value)
            case Shown(inner_scope, entry):
                host = self._hosts.value(inner_scope, entry, is_inner=False)
                inner = self._hosts.value(inner_scope, entry, is_inner=True)
                self._decide(scope, node, slot.name, host=host, inner=inner, found=found)
            case Lost():
                found.findings.append(_lost(scope, node, slot, end))
            case None:
                pass

    def _decide(self, scope: Scope, node: UiNode, name: str, *, host: Any, inner: Any, found: Inputs) -> None:
        chosen, other = (inner, host) if self._is_inner else (host, inner)
        if chosen is not MISSING:
            found.values[name] = wrapped(chosen)
        if host is MISSING or inner is MISSING or wrapped(host) == wrapped(inner):
            return
        found.others[name] = wrapped(other)
        place = scope.id_of(node)
        found.findings.append(notes.host_vs_inner(place, name, host=host, inner=inner))


def wrapped(value: Any) -> Any:
    """A list as the editor queues it, so that nobody takes it for a link."""
    return {"__value__": value} if isinstance(value, list) else value


def _typed(scope: Scope, primitive: UiNode) -> Any:
    pinned = scope.pins.get((primitive.id, "value"), MISSING)
    if pinned is not MISSING:
        return pinned
    values = primitive.values
    if isinstance(values, Mapping):
        return values.get("value", MISSING)
    return values[0] if values else MISSING


def _lost(scope: Scope, node: UiNode, slot: Slot, end: Lost) -> Finding:
    place = scope.id_of(node)
    if end.why == "circle":
        return notes.link_cycle(place, slot.name)
    if end.why == "unset":
        return notes.unresolved_get(end.scope.id_of(end.node), end.what)
    return notes.dangling(place, slot.name, end.what)
