"""A file with both graphs, as ComfyUI's pictures have them: `prompt` is what ran, `workflow` says more.

Values and links come from `prompt`; the packs, the addresses of models and the nodes that did not run come
from `workflow`. Where both are not of one and the same graph, people should know.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from comfyfarm.ids import NodeId
from comfyfarm.workflow.editor_nodes import makes_links
from comfyfarm.workflow.file_node import FileNode, file_node
from comfyfarm.workflow.findings import Finding, warning
from comfyfarm.workflow.graph import Link, Node, Workflow
from comfyfarm.workflow.node import Value, unwrap
from comfyfarm.workflow.schema import NodeSchema

if TYPE_CHECKING:
    from comfyfarm.workflow.ui.convert import Converted

_SHOWN = 5


def merged(workflow: Workflow, converted: "Converted") -> tuple[FileNode, ...]:
    """The nodes that run, with what the editor's file knows of them; then those that only it has."""
    hints = {node.id: node for node in converted.nodes}
    running = tuple(_with_hints(node, hints.get(node.id)) for node in workflow.nodes)
    ids = {node.id for node in running}
    return (*running, *(replace(node, active=False) for node in converted.nodes if node.id not in ids))


def disagreement(
    workflow: Workflow, converted: "Converted", tree: Mapping[str, Any], schema: NodeSchema
) -> Finding | None:
    """A warning `carriers_disagree` when both are not of one graph; None when they are."""
    other = Workflow.from_api(converted.graph, name=workflow.name)
    hints = {node.id: node for node in converted.nodes}
    places = list(
        islice(_differences(workflow, other, hints, schema, has_wireless=_has_wireless(tree)), _SHOWN + 1)
    )
    if not places:
        return None
    more = " and more" if len(places) > _SHOWN else ""
    message = f"its `prompt` and its `workflow` disagree: {', '.join(places[:_SHOWN])}{more}"
    remedy = "`prompt` is used, which is what ran; load the file in the editor to see the other"
    return warning("carriers_disagree", message, remedy)


def _with_hints(node: Node, hint: FileNode | None) -> FileNode:
    if hint is None or hint.class_type != node.class_type:
        return file_node(node)
    return replace(file_node(node), models=hint.models, pack=hint.pack)


def _has_wireless(tree: Mapping[str, Any]) -> bool:
    """Whether nodes make links that the editor's file does not show, as cg-use-everywhere does."""
    nodes = tree.get("nodes")
    return any(
        isinstance(node, dict) and makes_links(str(node.get("type"))[:100])
        for node in (nodes.values() if isinstance(nodes, dict) else nodes or ())
    )


def _differences(
    ours: Workflow,
    theirs: Workflow,
    hints: Mapping[NodeId, FileNode],
    schema: NodeSchema,
    *,
    has_wireless: bool,
) -> Iterator[str]:
    for node in ours.nodes:
        other = theirs.get(node.id)
        if other is None:
            yield f"node {node.id} is only in the first"
        elif other.class_type != node.class_type:
            yield f"node {node.id} has two classes"
        else:
            hint = hints.get(node.id)
            others = hint.others if hint is not None else MappingProxyType[str, Value]({})
            yield from _inputs(node, other, others, has_wireless=has_wireless)
    for other in theirs.nodes:
        # A class that no schema knows may live in the editor alone, and never runs.
        if ours.get(other.id) is None and schema.knows(other.class_type):
            yield f"node {other.id} is only in the second"


def _inputs(node: Node, other: Node, others: Mapping[str, Value], *, has_wireless: bool) -> Iterator[str]:
    """A value on one side only is no difference: defaults are left out, and widgets have no names."""
    for name, value in node.inputs.items():
        if name not in other.inputs:
            if isinstance(value, Link) and not has_wireless:
                yield f"{node.id}.{name[:60]}"
        elif not _same(value, other.inputs[name]) and not _same(value, others.get(name)):
            yield f"{node.id}.{name[:60]}"
    for name, theirs in other.inputs.items():
        if isinstance(theirs, Link) and name not in node.inputs:
            yield f"{node.id}.{name[:60]}"


def _same(ours: "Link | Value", theirs: "Link | Value") -> bool:
    if isinstance(ours, Link) or isinstance(theirs, Link):
        return ours == theirs
    ours, theirs = unwrap(ours), unwrap(theirs)
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return ours == theirs or (isinstance(theirs, str) and isinstance(ours, str) and _is_pattern(theirs))


def _is_pattern(text: str) -> bool:
    """Whether the editor fills something in when it queues: `{one|other}`, `%date%`, `%node.widget%`."""
    return ("{" in text and "|" in text) or text.count("%") > 1
