"""One node after the other, put into the API graph and into the list of the file's nodes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from comfyfarm.ids import NodeId
from comfyfarm.workflow.editor_nodes import editor_pack, virtual_of
from comfyfarm.workflow.file_node import WIDGETS, FileNode, ModelHint
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.node import Link, Value, freeze, is_link
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui import notes
from comfyfarm.workflow.ui.hints import matching, model_hints, pack_hint
from comfyfarm.workflow.ui.node_inputs import InputReader, Inputs
from comfyfarm.workflow.ui.placing import is_control
from comfyfarm.workflow.ui.scopes import Scope
from comfyfarm.workflow.ui.texts import text_findings
from comfyfarm.workflow.ui.tree import UiNode

_UPLOAD = "image"  # what the button for uploads leaves behind the values of a node


class Assembler:
    """Builds the API graph and the list of the file's nodes."""

    def __init__(self, schema: NodeSchema, reader: InputReader, models: tuple[ModelHint, ...]) -> None:
        self._schema = schema
        self._reader = reader
        self._models = {hint.name: hint for hint in models}
        self.graph: dict[str, Any] = {}
        self.nodes: list[FileNode] = []
        self.findings: list[Finding] = []

    def add(self, scope: Scope, node: UiNode) -> None:
        """Add one node that is no instance of a subgraph."""
        if virtual_of(node.type) is not None:
            if editor_pack(node.type) is not None:
                self._list(scope, node, Inputs({}), is_active=scope.is_active(node))
            return
        is_active = scope.is_active(node) and node.id not in scope.broken
        inputs = self._reader.read(scope, node)
        self._list(scope, node, inputs, is_active=is_active)
        if is_active:
            self._run(scope.id_of(node), node, inputs)

    def _run(self, node_id: str, node: UiNode, inputs: Inputs) -> None:
        title = node.title or self._schema.title(node.type)
        self.graph[node_id] = {"inputs": inputs.values, "class_type": node.type, "_meta": {"title": title}}
        self.findings += inputs.findings
        if not self._schema.knows(node.type):
            self.findings.append(
                notes.unknown_class(node_id, node.type, is_named=WIDGETS not in inputs.values)
            )
        if inputs.odd:
            self.findings.append(notes.misplaced_values(node_id, node.type))
        self.findings += [notes.dropped_input(node_id, name) for name in inputs.dropped]
        if too_much := _telling(inputs.rest):
            self.findings.append(notes.extra_values(node_id, too_much))
        self.findings += text_findings(node_id, inputs.values, self._schema.inputs(node.type))

    def _list(self, scope: Scope, node: UiNode, inputs: Inputs, *, is_active: bool) -> None:
        hints = model_hints(node.properties.get("models"))
        if self._models:
            hints += matching(self._models, [*inputs.values.values(), *inputs.others.values()])
        values = dict(inputs.values)
        if too_much := _telling(inputs.rest):
            # No input of the class takes them, so they are not in the graph; a model may be among them.
            values[WIDGETS] = {"__value__": too_much}
        self.nodes.append(
            FileNode(
                id=NodeId(scope.id_of(node)),
                class_type=node.type,
                inputs=_frozen(values),
                active=is_active,
                others=MappingProxyType({name: freeze(value) for name, value in inputs.others.items()}),
                models=hints,
                pack=pack_hint(node.properties),
            )
        )


def _frozen(values: Mapping[str, Any]) -> "Mapping[str, Link | Value]":
    return MappingProxyType(
        {
            name: Link(NodeId(value[0]), value[1]) if is_link(value) else freeze(value)
            for name, value in values.items()
        }
    )


def _telling(values: list[Any]) -> list[Any]:
    """What a person may have meant among values that nothing takes: texts, and what holds some."""
    return [value for value in values if _holds_text(value) and value != _UPLOAD and not is_control(value)]


def _holds_text(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return any(isinstance(item, str | list | dict) and item for item in value)
    return isinstance(value, str) and bool(value)
