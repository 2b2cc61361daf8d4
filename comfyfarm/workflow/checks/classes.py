"""Node classes that the schema does not have, and those that need more than a server."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from comfyfarm.workflow.editor_nodes import is_never_run
from comfyfarm.workflow.file_node import CORE_ID
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.node import Node
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

PackOf: TypeAlias = Callable[[str], str | None]
"""The node pack that has a class, as people know it; None when nobody knows."""


def class_findings(
    nodes: Sequence[Node], schema: NodeSchema, *, packs: PackOf | None = None
) -> Iterator[Finding]:
    """Unknown classes, with the pack that has them, and nodes of paid services."""
    kinds = {node.class_type for node in nodes}
    unknown = {kind for kind in kinds if not schema.knows(kind)}
    paid = {kind for kind in kinds if schema.needs_account(kind)}
    if not unknown and not paid:
        return
    for node in nodes:
        if node.class_type in unknown:
            yield from _unknown(node, schema, packs)
        elif node.class_type in paid:
            yield warning(
                "needs_account_and_network",
                f"{node.class_type} calls a paid service of Comfy: no lock can pin what it answers",
                "run it on servers with an account and a way out, or replace the node",
                node=node.id,
                field="class_type",
            )


def _unknown(node: Node, schema: NodeSchema, packs: PackOf | None) -> Iterator[Finding]:
    pack = packs(node.class_type) if packs is not None else None
    message = f"the class {shown(node.class_type, most=80)} is not in {schema.name}"
    if is_never_run(node.class_type) and pack is None:
        message = f"{message}: it exists in the editor only"
        remedy = "export the workflow from the editor in API format"
    elif pack is not None and (pack == CORE_ID or pack.lower().endswith("/comfyui")):
        message = f"{message}: it is of a newer ComfyUI"
        remedy = "update ComfyUI, or check against a server that has it (--schema-from URL)"
        yield warning("schema_newer", message, remedy, node=node.id, field="class_type")
    elif pack is not None:
        message = f"{message}: the node pack {pack} has it"
        remedy = f"install {pack}, or check against a server that has it (--schema-from URL)"
    else:
        newer = "" if schema.live else ", or a newer ComfyUI has it"
        remedy = f"install its node pack{newer}; or check against the server that has it (--schema-from URL)"
    yield error("unknown_class", message, remedy, node=node.id, field="class_type")
