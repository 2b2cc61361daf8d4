"""A node of a graph and the links between nodes, all of it immutable."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from comfyfarm.ids import NodeId

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | Mapping[str, Value] | None"
"""A JSON value that nobody can change: lists are tuples, objects are read-only mappings."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_OWN_KEYS = frozenset({"class_type", "inputs"})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Link:
    """An input that takes output number `slot` of another node."""

    node: NodeId
    slot: int


_TEXTLESS = frozenset({Link, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the API graph has it."""

    id: NodeId
    class_type: str
    title: str
    """The name a person gave it in the editor; the class when there is none."""
    inputs: Mapping[str, "Link | Value"]
    rest: Mapping[str, Value] = field(default_factory=lambda: _NOTHING)
    """Whatever else the file says of it, such as `_meta`."""

    @property
    def links(self) -> Iterator[tuple[str, Link]]:
        """Its inputs that come from other nodes."""
        return ((name, value) for name, value in self.inputs.items() if isinstance(value, Link))


def make_node(node_id: NodeId, raw: Mapping[str, Any]) -> Node:
    """A node from its JSON form, which has been checked."""
    inputs: dict[str, Link | Value] = {}
    for name, value in raw["inputs"].items():
        if type(value) in _SCALARS:
            inputs[name] = value
        elif is_link(value):
            inputs[name] = Link(value[0], value[1])
        else:
            inputs[name] = freeze(value)
    kind = raw["class_type"]
    if len(raw) == 2:  # only `class_type` and `inputs`
        return Node(node_id, kind, kind, MappingProxyType(inputs), _NOTHING)
    rest = MappingProxyType({key: freeze(raw[key]) for key in raw if key not in _OWN_KEYS})
    meta = rest.get("_meta")
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return Node(
        node_id, kind, title if isinstance(title, str) and title else kind, MappingProxyType(inputs), rest
    )


def raw_node(node: Node) -> dict[str, Any]:
    """The JSON form of a node, which the caller may change."""
    inputs = {
        name: [value.node, value.slot] if isinstance(value, Link) else thaw(value)
        for name, value in node.inputs.items()
    }
    return {"inputs": inputs, "class_type": node.class_type, **thaw(node.rest)}


def is_link(value: Any) -> bool:
    """Whether a JSON value is a link as ComfyUI means it: `[node id, slot number]`.

    Source: `is_link` in ComfyUI's comfy_execution/graph_utils.py; it takes a float for a slot too,
    and then fails, so that is no link here.
    """
    if not isinstance(value, list) or len(value) != 2:
        return False
    return isinstance(value[0], str) and isinstance(value[1], int) and not isinstance(value[1], bool)


def is_textless(inputs: Mapping[str, "Link | Value"]) -> bool:
    """Whether there are links and numbers only, which name nothing. Most nodes of large graphs are so."""
    return _TEXTLESS.issuperset(map(type, inputs.values()))


def unwrap(value: Value) -> Value:
    """The value inside `{"__value__": …}`, which is how ComfyUI takes a literal list."""
    if isinstance(value, Mapping) and "__value__" in value:
        return value["__value__"]
    return value


def texts_in(value: Value, *, keys: bool = False) -> Iterator[str]:
    """All texts in a value, in order; with `keys`, the names inside of objects as well."""
    ahead: list[Value] = [value]
    while ahead:
        item = ahead.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, tuple):
            ahead.extend(reversed(item))
        elif isinstance(item, Mapping):
            if keys:
                yield from item
            ahead.extend(reversed([*item.values()]))


def freeze(value: Any) -> Value:
    """A JSON value made immutable, all the way down. Nesting is bounded by strict reading."""
    if type(value) in _SCALARS:
        return value  # type: ignore[no-any-return]
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    return value  # type: ignore[no-any-return]  # only JSON's scalars are left


def thaw(value: Value) -> Any:
    """The JSON value that `freeze` made immutable, as lists and dictionaries of its own."""
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return value
