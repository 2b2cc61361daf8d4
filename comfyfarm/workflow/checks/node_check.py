"""All inputs of a node against its class: what is missing, too many, wrongly linked or of a wrong value.

Good nodes are passed over quickly: graphs of 100,000 nodes are checked in about a second.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from comfyfarm.workflow.checks.likeness import Suggestions
from comfyfarm.workflow.checks.link_types import match_findings, type_findings
from comfyfarm.workflow.checks.links import wrong_link, wrong_list
from comfyfarm.workflow.checks.liveness import View
from comfyfarm.workflow.checks.values import loose_findings, value_findings
from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.input_spec import AUTOGROW, InputSpec
from comfyfarm.workflow.node import Link, Node, Value, unwrap
from comfyfarm.workflow.schema import NodeSchema

_OF_THE_EDITOR = frozenset({"upload", "audioUI", "videoUI", "control_after_generate"})
"""Widgets without an input, which editors write into API files."""

_LOOKED_AT = frozenset({"COMBO", "STRING", "*"})
"""Types of which an equal type does not say enough: names of files, and lists of options."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Checks nodes of one graph; what is the same for all nodes of a class is found out once."""

    view: View
    schema: NodeSchema
    check_files: bool
    from_editor: bool = False
    like: Suggestions = field(default_factory=Suggestions)

    def findings(self, node: Node) -> Iterator[Finding]:
        """What is wrong with the inputs of a node."""
        specs = self.schema.expanded(node.class_type, node.inputs)
        has_matches = False
        for name, value in node.inputs.items():
            spec = specs.get(name)
            if type(value) is not Link:
                yield from self._literal(node, name, spec, value)
            elif spec is None or not self._is_good_link(spec, value):
                yield from self._link(node, name, spec, value)
            has_matches = has_matches or (spec is not None and spec.template != "")
        for spec in specs.values():
            if spec.required and spec.name not in node.inputs:
                yield _missing(node, spec)
        if has_matches:
            yield from match_findings(node, specs, self.view, self.schema)

    def _is_good_link(self, spec: InputSpec, link: Link) -> bool:
        source = self.view.by_id.get(link.node)
        if source is None:
            return False
        outputs = self.schema.outputs(source.class_type)
        if not 0 <= link.slot < len(outputs) or outputs[link.slot] != spec.type:
            return False
        return spec.type not in _LOOKED_AT

    def _link(self, node: Node, name: str, spec: InputSpec | None, link: Link) -> Iterator[Finding]:
        yield from wrong_link(node, name, link, self.view, self.schema, is_known=spec is not None)
        if spec is not None:
            yield from type_findings(node, spec, link, self.view, self.schema)
        else:
            yield from self._extra(node, name)

    def _literal(
        self, node: Node, name: str, spec: InputSpec | None, value: "Link | Value"
    ) -> Iterator[Finding]:
        if isinstance(value, tuple):
            yield from wrong_list(node, name, value, self.view, self.schema, is_known=spec is not None)
        if spec is None:
            yield from self._extra(node, name)
            if not isinstance(value, Link):
                yield from loose_findings(node, name, unwrap(value), self.schema)
        elif not isinstance(value, Link | tuple):
            yield from value_findings(
                node,
                spec,
                unwrap(value),
                self.schema,
                check_files=self.check_files,
                from_editor=self.from_editor,
                like=self.like,
            )

    def _extra(self, node: Node, name: str) -> Iterator[Finding]:
        if not self.schema.knows(node.class_type) or name in _OF_THE_EDITOR:
            return
        group = self._group_of(node, name)
        if group is not None:
            parts = [spec.name for spec in group.parts.get("", ())]
            takes = f"{parts[0]} to {parts[-1]}" if parts else "none"
            message = f"is no part that {group.name} takes ({takes}), so ComfyUI ignores it"
            remedy = "connect it to one of those, or take it out"
            yield warning("unknown_part", message, remedy, node=node.id, field=name)
            return
        message = f"{node.class_type} has no such input in {self.schema.name}, so ComfyUI ignores it"
        remedy = "nothing, unless the node takes inputs that its schema does not name"
        yield info("extra_input", message, remedy, node=node.id, field=name)

    def _group_of(self, node: Node, name: str) -> InputSpec | None:
        """The autogrow group that the name would be a part of."""
        prefix, dot, _ = name.rpartition(".")
        if not dot:
            return None
        found = _groups(self.schema.inputs(node.class_type), node.inputs)
        return found.get(prefix)


def _groups(specs: Mapping[str, InputSpec], values: Mapping[str, "Link | Value"]) -> dict[str, InputSpec]:
    found: dict[str, InputSpec] = {}
    ahead = [*specs.values()]
    while ahead:
        spec = ahead.pop()
        if spec.type == AUTOGROW:
            found[spec.name] = spec
        elif spec.is_dynamic:
            value = values.get(spec.name)
            given = None if isinstance(value, Link) else value
            ahead.extend(spec.active_parts(given, is_given=spec.name in values))
    return found


def _missing(node: Node, spec: InputSpec) -> Finding:
    remedy = "connect or set it, and export again: the server fills in no defaults"
    if spec.is_dynamic:
        # Without a choice ComfyUI takes the input for one that this node does not have.
        message = f"{node.class_type} needs it; ComfyUI does not notice, and the node fails"
        return warning("missing_input", message, remedy, node=node.id, field=spec.name)
    message = f"{node.class_type} needs it, and the file leaves it out"
    return error("missing_input", message, remedy, node=node.id, field=spec.name)
