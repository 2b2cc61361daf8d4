"""A node of a graph and the links between nodes, all of it immutable."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from comfyfarm.ids import NodeId

Value: TypeAlias = "str | int | float | bool | tuple[Value, ...] | Mapping[str, Value] | None"
"""A JSON value that nobody can change: lists are tuples, objects are read-only mappings."""


@dataclass(frozen=True, slots=True)
class Link:
    """An input that takes output number `slot` of another node."""

    node: NodeId
    slot: int


@dataclass(frozen=True, slots=True)
class Node:
    """One node as the API graph has it."""

    id: NodeId
    class_type: str
    title: str
    """The name a person gave it in the editor; the class when there is none."""
    inputs: Mapping[str, "Link | Value"]

    @property
    def links(self) -> Iterator[tuple[str, Link]]:
        """Its inputs that come from other nodes."""
        return ((name, value) for name, value in self.inputs.items() if isinstance(value, Link))

    @property
    def literals(self) -> Iterator[tuple[str, Value]]:
        """Its inputs that are values of their own; `{"__value__": x}` is given as x."""
        for name, value in self.inputs.items():
            if not isinstance(value, Link):
                yield name, unwrap(value)


def make_node(node_id: NodeId, raw: Mapping[str, Any]) -> Node:
    """A node from its JSON form, which has been checked."""
    meta = raw.get("_meta")
    title = meta.get("title") if isinstance(meta, dict) else None
    inputs = {name: _input(value) for name, value in raw["inputs"].items()}
    return Node(
        id=node_id,
        class_type=raw["class_type"],
        title=title if isinstance(title, str) and title else raw["class_type"],
        inputs=MappingProxyType(inputs),
    )


def is_link(value: Any) -> bool:
    """Whether a JSON value is a link as ComfyUI means it: `[node id, slot number]`.

    Source: `is_link` in ComfyUI's comfy_execution/graph_utils.py; it takes a float for a slot too,
    and then fails, so that is no link here.
    """
    if not isinstance(value, list) or len(value) != 2:
        return False
    return isinstance(value[0], str) and isinstance(value[1], int) and not isinstance(value[1], bool)


def unwrap(value: Value) -> Value:
    """The value inside `{"__value__": …}`, which is how ComfyUI takes a literal list."""
    if isinstance(value, Mapping) and "__value__" in value:
        return value["__value__"]
    return value


def _input(value: Any) -> "Link | Value":
    return Link(NodeId(value[0]), value[1]) if is_link(value) else freeze(value)


def freeze(value: Any) -> Value:
    """A JSON value made immutable, all the way down. Nesting is bounded by strict reading."""
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    if isinstance(value, Mapping):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    return value  # type: ignore[no-any-return]  # only JSON's scalars are left
