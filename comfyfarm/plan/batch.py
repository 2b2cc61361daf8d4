"""From job lines to jobs: names and ids that are the same whenever the same call is made again."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

from comfyfarm.errors import JobConflict
from comfyfarm.ids import JobId, Sha256
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.job_file import JobLine
from comfyfarm.workflow.canonical import canonical_json, digest_of
from comfyfarm.workflow.overrides import Override, merge_overrides

_NAMESPACE = uuid.UUID("5b1a6b2e-6f0e-5d55-9b8c-0c9c3f3a7f10")
"""Of job ids; changing it would make every known job a new one."""


def content_digest(graph_digest: Sha256, overrides: Iterable[Override]) -> Sha256:
    """SHA-256 over a graph and what is put into it: equal for equal work."""
    return digest_of([graph_digest, _rows(overrides)])


def job_id(batch: str, graph_digest: Sha256, overrides: Iterable[Override], line: int) -> JobId:
    """The id of a job that was given none: UUIDv5 of batch, workflow, overrides and line number."""
    content = canonical_json([batch, graph_digest, _rows(overrides), line])
    return JobId(str(uuid.uuid5(_NAMESPACE, content)))


def default_batch_name(stem: str, contents: Iterable[str], graph_digests: Iterable[Sha256], out: str) -> str:
    """`<stem>-<8 hex digits>`: another name as soon as a job, a workflow or the place differs.

    `stem`: the file's name without its suffix. `contents`: each job's own, in order.
    """
    return f"{stem}-{digest_of([list(contents), list(graph_digests), out])[:8]}"


def plan_batch(
    lines: Sequence[JobLine],
    graph_digests: Mapping[str, Sha256],
    *,
    stem: str,
    out: str,
    batch: str | None = None,
    overrides: Iterable[Override] = (),
) -> tuple[JobSpec, ...]:
    """The jobs of a batch, in the order of the file.

    Args:
        lines: the job file; for a single workflow, one line.
        graph_digests: `Workflow.digest` for each `workflow` that the lines name.
        stem: the file's name without its suffix, for the default batch name.
        out: where outputs go, as the user wrote it.
        batch: the name, when the user gave one.
        overrides: for each job; a job's own win.

    Raises:
        JobConflict: two jobs would have one id.
    """
    given = tuple(overrides)
    merged = [merge_overrides(given, line.overrides) for line in lines]
    digests = [graph_digests[line.workflow] for line in lines]
    contents = [canonical_json([line.id, _rows(values)]) for line, values in zip(lines, merged, strict=True)]
    name = batch or default_batch_name(stem, contents, digests, out)
    specs = tuple(
        JobSpec(
            id=line.id or job_id(name, digest, values, line.line),
            batch=name,
            position=position,
            graph_digest=digest,
            overrides=values,
            content_digest=content_digest(digest, values),
            **line.settings,
        )
        for position, (line, digest, values) in enumerate(zip(lines, digests, merged, strict=True))
    )
    _refuse_twins(lines, specs)
    return specs


def _rows(overrides: Iterable[Override]) -> list[list[object]]:
    ordered = sorted(overrides, key=lambda item: (item.node, item.input))
    return [[item.node, item.input, item.value] for item in ordered]


def _refuse_twins(lines: Sequence[JobLine], specs: Sequence[JobSpec]) -> None:
    seen: dict[JobId, int] = {}
    for line, spec in zip(lines, specs, strict=True):
        if spec.id in seen:
            raise JobConflict(f"lines {seen[spec.id]} and {line.line} have the same id {spec.id}")
        seen[spec.id] = line.line
