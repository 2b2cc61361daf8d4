"""A graph against a node schema: what ComfyUI would refuse, what it takes and ignores or changes."""

from collections.abc import Iterable, Iterator
from itertools import chain

from comfyfarm.workflow.assets import asset_findings, find_assets
from comfyfarm.workflow.checks.classes import PackOf, class_findings
from comfyfarm.workflow.checks.links import cycle_findings
from comfyfarm.workflow.checks.liveness import View, view_of
from comfyfarm.workflow.checks.node_check import Judge
from comfyfarm.workflow.checks.severity import unused, weighed
from comfyfarm.workflow.findings import Finding, Severity, error, info
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.node import Link, is_textless, texts_in
from comfyfarm.workflow.prefix import prefix_findings
from comfyfarm.workflow.schema import NodeSchema


def check(
    workflow: Workflow,
    schema: NodeSchema,
    *,
    check_files: bool = False,
    from_editor: bool = False,
    packs: PackOf | None = None,
    all_outputs: bool = False,
) -> tuple[Finding, ...]:
    """What ComfyUI would refuse, as errors; what it takes and ignores or changes, as warnings.

    `check_files`: whether names of models have to be in the schema's lists, which are true of a
    running server only. A render leaves it: models may still be hydrated, or lie on another server.
    `from_editor`: the graph was converted from what the editor saves. It may be a blueprint: that it
    has no output is then no error; and the converter has told of what the editor fills in.
    `packs`: who has a class that the schema does not know.
    `all_outputs`: whether an output that ComfyUI would skip, while it runs the others, is an error.
    """
    nodes = workflow.nodes
    view = view_of(nodes, schema)
    judge = Judge(view, schema, check_files=check_files, from_editor=from_editor)
    found = [
        *class_findings(nodes, schema, packs=packs),
        *_no_output(view, from_editor=from_editor),
        *chain.from_iterable(map(judge.findings, nodes)),
        *cycle_findings(view),
        *_odd_texts(nodes),
        *asset_findings(find_assets(workflow, schema)),
        *prefix_findings(workflow, schema),
    ]
    if from_editor and not view.outputs:  # a blueprint, which is to be connected still
        found = [_open_end(finding) for finding in found]
    judged = weighed(found, view, all_outputs=all_outputs)
    return (*judged, *unused(view, judged))


def _no_output(view: View, *, from_editor: bool) -> Iterator[Finding]:
    if not view.outputs:
        tell = info if from_editor else error
        message = "no node is an output, so ComfyUI would run nothing"
        yield tell("no_outputs", message, "end the graph in a node that saves, such as SaveImage")


def _open_end(finding: Finding) -> Finding:
    if finding.code != "missing_input":
        return finding
    return finding.model_copy(update={"severity": Severity.WARNING})


def _odd_texts(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Files are read strictly; values put in from outside are not."""
    for node in nodes:
        if is_textless(node.inputs):
            continue
        for name, value in node.inputs.items():
            if not isinstance(value, Link) and any("\0" in text for text in texts_in(value, keys=True)):
                message = "holds the character U+0000"
                remedy = "take it out: no file name can hold it, and no text of PostgreSQL"
                yield error("nul_character", message, remedy, node=node.id, field=name)
