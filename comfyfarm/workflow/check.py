"""Preflight: everything that can be known of a workflow before a GPU is paid for."""

from collections.abc import Iterator, Mapping

from comfyfarm.addresses import mask
from comfyfarm.workflow.assets import Asset, find_assets
from comfyfarm.workflow.findings import Finding, Refused, error, has_errors, warning
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.links import dead, link_findings, live_nodes
from comfyfarm.workflow.node import Value
from comfyfarm.workflow.reader import read
from comfyfarm.workflow.references import References, find_references
from comfyfarm.workflow.report import Report
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.values import input_findings


def preflight(data: bytes, *, name: str, schema: NodeSchema) -> Report:
    """Read a workflow file and report on it. What cannot be read is a report as well."""
    try:
        reading = read(data, name=name)
    except Refused as exc:
        codes = {finding.code for finding in exc.findings}
        return Report(
            file=mask(name), format="ui" if "ui_format" in codes else "unknown", findings=exc.findings
        )
    references = find_references(reading.workflow, schema)
    assets = find_assets(reading.workflow, schema)
    return Report(
        file=mask(name),
        format=reading.format,
        findings=(
            *reading.findings,
            *check(reading.workflow, schema, check_files=schema.live),
            *_names(references, assets),
        ),
        references=references.references,
        unclassified=references.unclassified,
        assets=assets,
    )


def check(workflow: Workflow, schema: NodeSchema, *, check_files: bool = False) -> tuple[Finding, ...]:
    """What ComfyUI would refuse, as errors; what it takes and ignores or changes, as warnings.

    `check_files`: whether names of models have to be in the schema's lists, which are true of a
    running server only. A render leaves it: models may still be hydrated, or lie on another server.
    """
    alive = live_nodes(workflow.nodes, schema)
    values = [
        f for node in workflow.nodes for f in input_findings(node, workflow, schema, check_files=check_files)
    ]
    return (
        *_unknown_classes(workflow, schema),
        *_no_output(workflow, schema),
        *link_findings(workflow.nodes, schema),
        *_odd_texts(workflow),
        *(
            finding if finding.node in alive or not has_errors([finding]) else dead(finding)
            for finding in values
        ),
    )


def _unknown_classes(workflow: Workflow, schema: NodeSchema) -> Iterator[Finding]:
    for node in workflow.nodes:
        if not schema.knows(node.class_type):
            yield error(
                "unknown_class",
                f"the class {node.class_type!r} is not in {schema.name}",
                "install its node pack, or check against the server that has it (--schema-from URL)",
                node=node.id,
                field="class_type",
            )


def _odd_texts(workflow: Workflow) -> Iterator[Finding]:
    """Files are read strictly; values put in from outside are not."""
    for node in workflow.nodes:
        for name, value in node.literals:
            if any("\0" in text for text in _texts(value)):
                message = "holds the character U+0000"
                remedy = "take it out: no file name can hold it, and no text of PostgreSQL"
                yield error("nul_character", message, remedy, node=node.id, field=name)


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _texts(item)


def _no_output(workflow: Workflow, schema: NodeSchema) -> Iterator[Finding]:
    if not any(_may_be_output(node, schema) for node in workflow.nodes):
        message = "no node is an output, so ComfyUI would run nothing"
        yield error("no_outputs", message, "end the graph in a node that saves, such as SaveImage")


def _may_be_output(node: Node, schema: NodeSchema) -> bool:
    return not schema.knows(node.class_type) or schema.is_output_node(node.class_type)


def _names(references: References, assets: tuple[Asset, ...]) -> Iterator[Finding]:
    for asset in assets:
        if asset.escapes:
            message = f"{asset.name!r} leads out of the folder of inputs, which ComfyUI refuses"
            yield error("path_escape", message, "name a file inside it", node=asset.node, field=asset.input)
    for item in references.unclassified:
        message = f"{item.name!r} looks like a model, and its folder is not known"
        remedy = "list it in the catalogue under the folder that its node reads"
        yield warning("unclassified_model", message, remedy, node=item.node, field=item.input)
