"""Tells who names a job file where a workflow is wanted what it is."""

import json
from collections.abc import Iterable, Sequence
from itertools import islice

from comfyfarm.addresses import mask
from comfyfarm.workflow.findings import Finding, has_errors

_MOST_LINES = 20
_MOST_NAMED = 3
_MOST_BYTES = 1 << 24


def with_job_file_hint(findings: Sequence[Finding], data: bytes) -> tuple[Finding, ...]:
    """The findings; of a job file one that says so, under the code of the first error."""
    wrong = next((finding for finding in findings if has_errors([finding])), None)
    names = _workflows(data) if wrong is not None else ()
    if wrong is None or not names:
        return tuple(findings)
    named = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    said = {"message": "this looks like a job file", "remedy": f"name its workflows: {named}"}
    return (wrong.model_copy(update={**said, "node": None, "field": None}),)


def _workflows(data: bytes) -> tuple[str, ...]:
    """What the lines name as workflows; nothing unless each of the first lines is a job."""
    if len(data) > _MOST_BYTES or not data.lstrip().startswith(b"{"):
        return ()
    lines: Iterable[bytes] = (line for line in data.splitlines() if line.strip())
    names: dict[str, None] = {}
    for line in islice(lines, _MOST_LINES):
        try:
            job = json.loads(line)
        except (ValueError, RecursionError):
            return ()
        if not isinstance(job, dict) or not isinstance(job.get("workflow"), str):
            return ()
        names[mask(job["workflow"])[:200]] = None
    return tuple(names)
