"""A node as a file has it, whether it would run or not: what references and packs are read from.

An API graph holds what runs. A UI file says more: muted nodes, the pack a node came from, where its
models were downloaded from, and values on which editors of different age disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from comfyfarm.ids import NodeId
from comfyfarm.workflow.node import Link, Node, Value

_NO_OTHERS: Mapping[str, Value] = MappingProxyType({})

Editor: TypeAlias = Literal["1.45", "1.58"]
"""Which age of editor to follow where they disagree about what a UI file means."""

WIDGETS = "widgets_values"
"""The input under which the values of a UI node stand when nothing says their names."""


CORE_ID = "comfy-core"
"""What registries call ComfyUI itself."""


@dataclass(frozen=True, slots=True)
class ModelHint:
    """An entry of `properties.models`: where the editor says that a model comes from.

    It can be stale; the widget decides. Source: facts on 2,936 such entries in real files, 1 % with hash.
    """

    name: str
    url: str | None = None
    directory: str | None = None
    """The models-folder key."""
    sha256: str | None = None
    """64 lower-case hex digits, when the file gives one."""


@dataclass(frozen=True, slots=True)
class PackHint:
    """Which node pack the editor says a node came from."""

    cnr_id: str | None = None
    """Id in the registry; `CORE_ID` is ComfyUI itself."""
    aux_id: str | None = None
    """`user/repo`, when it is not from the registry."""
    ver: str | None = None
    """A semver, 4 to 40 hex digits of a commit, `nightly` or `unknown`; a leading v is stripped."""


@dataclass(frozen=True, slots=True)
class FileNode:
    """One node of a file, of whatever format."""

    id: NodeId
    """The id path as in the API graph, `19:3` inside a subgraph."""
    class_type: str
    inputs: Mapping[str, "Link | Value"]
    """By name, as in the API graph; values without a known name stand in `widgets_values`."""
    active: bool = True
    """False when muted, bypassed, inside such a subgraph, or in a template that nothing uses."""
    others: Mapping[str, Value] = field(default_factory=lambda: _NO_OTHERS)
    """Values that an editor of another age would run instead, by input."""
    models: tuple[ModelHint, ...] = ()
    pack: PackHint | None = None


def file_node(node: Node) -> FileNode:
    """The same of a node of an API graph, which says nothing more."""
    return FileNode(node.id, node.class_type, node.inputs)
