"""A workflow in API format: what `POST /prompt` takes, as a value that nobody can change."""

import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from comfyfarm.errors import WorkflowError
from comfyfarm.ids import NodeId, Sha256
from comfyfarm.workflow.canonical import digest_of
from comfyfarm.workflow.node import Link as Link
from comfyfarm.workflow.node import Node as Node
from comfyfarm.workflow.node import make_node, raw_node


class Workflow:
    """A graph, equal to every other of the same content. Pickles as its JSON text."""

    def __init__(self, text: str, name: str) -> None:
        """From JSON text whose shape has been checked; use `read_workflow` for files."""
        self._text: str | None = text
        self.name = name
        """What it is called in messages: the file's path or address."""

    @classmethod
    def from_api(cls, graph: Mapping[str, Any], *, name: str) -> "Workflow":
        """A workflow from an API graph of checked shape, such as `to_api` gives."""
        made = cls("", name)
        # The text is made when it is asked for: most graphs are looked at and never sent.
        made._text = None
        made._by_id = _nodes(graph)
        return made

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of the file."""
        return tuple(self._by_id.values())

    def node(self, node_id: str) -> Node:
        """The node of that id.

        Raises:
            WorkflowError: there is none.
        """
        found = self.get(node_id)
        if found is None:
            raise WorkflowError(f"{self.name}: there is no node {node_id}")
        return found

    def get(self, node_id: str) -> Node | None:
        """The node of that id, if there is one."""
        return self._by_id.get(NodeId(node_id))

    def to_api(self) -> dict[str, Any]:
        """The API graph, titles (`_meta`) included: a fresh copy that the caller may change."""
        return {str(node.id): raw_node(node) for node in self._by_id.values()}

    @cached_property
    def digest(self) -> Sha256:
        """SHA-256 of the graph as canonical JSON: files that differ only in key order have one.

        Titles (`_meta`) count: ComfyUI writes them into the pictures' metadata, so that equal
        digests mean equal prompts, to the byte of what is rendered.
        """
        return digest_of(self.to_api())

    @cached_property
    def _by_id(self) -> Mapping[NodeId, Node]:
        return _nodes(json.loads(self._text or "{}"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workflow) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self.nodes)} nodes)"

    def __reduce__(self) -> tuple[type["Workflow"], tuple[str, str]]:
        if self._text is None:
            self._text = json.dumps(self.to_api(), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        return (Workflow, (self._text, self.name))


def _nodes(graph: Mapping[str, Any]) -> Mapping[NodeId, Node]:
    made = (make_node(NodeId(key), raw) for key, raw in graph.items())
    return MappingProxyType({node.id: node for node in made})
