"""Workflow files as a render takes them: of any format, but complete.

The ids of jobs come from the graph, so one file must give one graph, whatever the servers know. UI format is
converted with the shipped schema; where that leaves values without names, a person converts the file once.
"""

import shlex
from itertools import islice

from comfyfarm.addresses import mask
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.sources import Sources
from comfyfarm.workflow.file_node import WIDGETS
from comfyfarm.workflow.findings import Finding, Refused, error, has_errors
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.preflight import PackRules, preflight
from comfyfarm.workflow.reading.reader import Reading, read
from comfyfarm.workflow.reports.report import Report
from comfyfarm.workflow.schema import NodeSchema

_REPORTS = 20  # of a batch; the graphs of a sweep are alike


def read_to_render(data: bytes, *, name: str) -> Reading:
    """Read a workflow file.

    Raises:
        Refused: a `WorkflowError` with all that is wrong, values that have no names among it.
    """
    reading = read(data, name=name)
    findings = (*reading.findings, *_unnamed(reading.workflow, name))
    if has_errors(findings):
        raise Refused(name, findings)
    return reading


def reports_on(request: RenderRequest, sources: Sources, schema: NodeSchema) -> tuple[Report, ...]:
    """What preflight says of the files of a request, under its policy; of many, the first ones."""
    rules = PackRules(choices=request.project.packs, policy=request.project.policy)
    files = islice(sources.workflows.items(), _REPORTS)
    return tuple(preflight(data, name=name, schema=schema, packs=rules) for name, data in files)


def _unnamed(workflow: Workflow, name: str) -> tuple[Finding, ...]:
    """Values of UI nodes whose class the shipped schema does not know, and whose file does not name them."""
    return tuple(
        error(
            "unnamed_values",
            f"nothing says which inputs of {node.class_type} its values are for",
            "convert it once with the node classes of a server that has them: "
            f"comfyfarm convert {shlex.quote(mask(name))} --schema-from URL > api.json",
            node=node.id,
            field=WIDGETS,
        )
        for node in workflow.nodes
        if WIDGETS in node.inputs
    )
