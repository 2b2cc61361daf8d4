"""Jobs whose graphs are complete: overrides in place, checked, and let in by the policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from comfyfarm.addresses import mask
from comfyfarm.errors import OverrideError, WorkflowError
from comfyfarm.farm.line_faults import LineFaults
from comfyfarm.farm.request import RenderRequest
from comfyfarm.ids import JobId, Sha256
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.lock.project_file import ProjectFile
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.job_file import JobLine
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.file_node import file_node
from comfyfarm.workflow.findings import Finding, Refused
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.overrides import apply_overrides
from comfyfarm.workflow.packs.policy import Policy, pickle_findings, policy_findings
from comfyfarm.workflow.packs.resolve import resolve_packs
from comfyfarm.workflow.schema import NodeSchema


@dataclass(frozen=True)
class Planned:
    """The batch's name and jobs, from the files alone: no server has been asked yet."""

    batch: str
    jobs: tuple[JobSpec, ...]
    workflows: Mapping[str, Workflow]
    """As read, by the name under which the jobs know them."""
    warnings: tuple[str, ...] = ()
    """What was noticed while they were read."""


@dataclass(frozen=True)
class Ready:
    """A job's graph with its overrides in place."""

    job: JobId
    line: str
    """Where a job file has it, such as `jobs.jsonl line 3`; without a job file, empty."""
    source: str
    digest: Sha256
    graph: Workflow


def ready_jobs(
    request: RenderRequest, lines: Sequence[JobLine], planned: Planned, schema: NodeSchema
) -> tuple[Ready, ...]:
    """Every job's graph with its overrides.

    Raises:
        OverrideError: all that name what their graph has not.
    """
    ready: list[Ready] = []
    faults = LineFaults()
    for line, job in zip(lines, planned.jobs, strict=True):
        place = f"{mask(request.job_file)} line {line.line}" if request.job_file is not None else ""
        try:
            graph = apply_overrides(planned.workflows[line.workflow], job.overrides, schema=schema)
        except OverrideError as exc:
            for problem in str(exc).split("\n"):
                faults.add(problem, place)
            continue
        ready.append(
            Ready(job=job.id, line=place, source=line.workflow, digest=job.graph_digest, graph=graph)
        )
    if faults:
        raise OverrideError(str(faults))
    return tuple(ready)


def checked(ready: Sequence[Ready], schema: NodeSchema, project: ProjectFile) -> tuple[str, ...]:
    """What is worth knowing of graphs that can run.

    Raises:
        WorkflowError: all that cannot, or may not.
    """
    errors = LineFaults()
    warnings: dict[str, None] = {}
    for one in ready:
        for found in (*check(one.graph, schema, all_outputs=True), *_not_let_in(one.graph, schema, project)):
            place = f"{one.source}: node {found.node}" if found.node else one.source
            place = f"{place}, {found.field}" if found.field else place
            line = f"{place}: {found.message}" + (f" ({found.remedy})" if found.remedy else "")
            if found.severity == "error":
                errors.add(line, one.line)
            else:
                warnings[line] = None
    if errors:
        raise WorkflowError(str(errors))
    return tuple(warnings)


def _not_let_in(graph: Workflow, schema: NodeSchema, project: ProjectFile) -> tuple[Finding, ...]:
    """The classes and packs that the policy refuses; nothing is looked up where it says nothing."""
    if project.policy.allow_classes is None and project.policy.allow_packs is None:
        return ()
    nodes = [file_node(node) for node in graph.nodes]
    packs = resolve_packs(nodes, schema, choices=project.packs)
    return policy_findings(nodes, packs, policy=project.policy)


def refuse_pickles(models: Sequence[LockedModel], policy: Policy, lock_name: str) -> None:
    """Refuse pinned files that run code when they are loaded, where a policy says which may.

    Raises:
        Refused: a `WorkflowError` that names all of them.
    """
    refused = pickle_findings([(one.title, one.sha256) for one in models], policy=policy)
    if refused:
        raise Refused(lock_name, refused)
