"""Job files: one JSON object a line, `{"id": "…", "workflow": "…", "set": {"3.seed": 7}}`.

Optional on each line: `priority`, `deadline`, `tenant`, `deadlines` (`comfyfarm.plan.job_settings`).
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import PositiveInt

from comfyfarm.errors import CatalogueError, JobConflict, OverrideError
from comfyfarm.ids import JobId, is_job_id
from comfyfarm.plan.job_settings import JobSettings, read_settings, settings_problems
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.overrides import Override, read_overrides
from comfyfarm.workflow.strict import strict_json

_KEYS = ("id", "workflow", "set", *JobSettings.model_fields)
_ENOUGH = 20  # problems in one message; a file with a wrong column has one on each line


class JobLine(JobSettings):
    """One job as the file has it."""

    line: PositiveInt
    """Number of the line in the file, from 1."""
    workflow: str
    """Path or address as written: relative to the job file, absolute, or with a scheme."""
    id: JobId | None = None
    """None: an id is made from the contents."""
    overrides: tuple[Override, ...] = ()
    """Sorted by node and input."""


def read_job_file(data: bytes, *, name: str) -> tuple[JobLine, ...]:
    """Read a job file; blank lines are skipped.

    Raises:
        CatalogueError: lines that cannot be read, named with file and line; or there is no job.
        JobConflict: an id occurs on two lines.
    """
    jobs: list[JobLine] = []
    problems: list[str] = []
    for number, text in _lines(data):
        try:
            jobs.append(_job(text, number, name=f"{name} line {number}"))
        except CatalogueError as exc:
            problems.append(str(exc))
    if problems:
        more = [f"… and {len(problems) - _ENOUGH} lines more"] if len(problems) > _ENOUGH else []
        raise CatalogueError("\n".join([*problems[:_ENOUGH], *more]))
    if not jobs:
        raise CatalogueError(f"{name}: there is no job in it; write one JSON object a line")
    _refuse_twins(jobs, name)
    return tuple(jobs)


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _job(text: bytes, number: int, *, name: str) -> JobLine:
    try:
        raw = strict_json(text, name=name)
    except Refused as exc:
        raise CatalogueError(str(exc)) from exc
    if not isinstance(raw, dict):
        raise CatalogueError(f'{name}: is no JSON object; write {{"workflow": "…", "set": {{…}}}}')
    problems = list(_problems(raw))
    if problems:
        raise CatalogueError("\n".join(f"{name}: {problem}" for problem in problems))
    try:
        overrides = read_overrides(raw.get("set") or {})
    except OverrideError as exc:
        raise CatalogueError(f"{name}: set: {exc}") from exc
    return JobLine(
        line=number,
        workflow=raw["workflow"],
        id=raw.get("id"),
        overrides=overrides,
        **read_settings(raw).settings,
    )


def _problems(raw: dict[str, Any]) -> Iterator[str]:
    unknown = sorted(raw.keys() - set(_KEYS))
    if unknown:
        yield f"unknown key {', '.join(map(repr, unknown))}; the keys are {', '.join(_KEYS)}"
    if not isinstance(raw.get("workflow"), str) or not raw["workflow"]:
        yield "workflow is missing; name the file, relative to the job file, or an address"
    if not isinstance(raw.get("set", {}), dict | None):
        yield 'set is no object; write {"node.input": value}'
    job_id = raw.get("id")
    if job_id is not None and not (isinstance(job_id, str) and is_job_id(job_id)):
        yield f"id {job_id!r:.60} is no lower-case hyphenated UUID; leave it out to have one made"
    yield from settings_problems(raw)


def _refuse_twins(jobs: Iterable[JobLine], name: str) -> None:
    seen: dict[JobId, int] = {}
    for job in jobs:
        if job.id is not None and job.id in seen:
            raise JobConflict(
                f"{name}: lines {seen[job.id]} and {job.line} have the same id {job.id}; an id is one job"
            )
        if job.id is not None:
            seen[job.id] = job.line
