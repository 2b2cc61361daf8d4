"""Everything that a request names, read once: workflow or job file, every workflow of it, the lock."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import base_name, is_address, read_bytes, sibling
from comfyfarm.errors import UsageError
from comfyfarm.farm.request import RenderRequest
from comfyfarm.plan.job_file import JobLine, read_job_file

WORKFLOW_LIMIT_BYTES = 64 * 1024 * 1024
JOB_FILE_LIMIT_BYTES = 256 * 1024 * 1024
LOCK_LIMIT_BYTES = 16 * 1024 * 1024
INLINE = "<inline>"


class Sources(BaseModel):
    """Everything that the request names, read once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stem: str
    jobs: tuple[JobLine, ...]
    """Their `workflow` is the path or address to open, `<inline>` for one that was handed over itself."""
    workflows: Mapping[str, bytes]
    lock: bytes | None
    lock_name: str

    def digest(self) -> str:
        """SHA-256 over all of it: what a cached preflight is kept under."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def read_sources(request: RenderRequest) -> Sources:
    """Read the workflow or job file, every workflow that it names, and the lock.

    Raises:
        InputError: a file that is not there or is no such file.
        UsageError: both or neither of workflow and job file.
    """
    if (request.workflow is None) == (request.job_file is None):
        raise UsageError("name one workflow or one job file")
    jobs, workflows, stem = (
        _from_job_file(request) if request.job_file is not None else _from_workflow(request)
    )
    lock, lock_name = _read_lock_bytes(request)
    return Sources(stem=stem, jobs=jobs, workflows=workflows, lock=lock, lock_name=lock_name)


def _from_workflow(request: RenderRequest) -> tuple[tuple[JobLine, ...], dict[str, bytes], str]:
    if isinstance(request.workflow, dict):
        name, data, stem = INLINE, json.dumps(request.workflow).encode(), "workflow"
    else:
        name = str(request.workflow)
        data, stem = read_bytes(name, limit_bytes=WORKFLOW_LIMIT_BYTES), Path(base_name(name)).stem
    return (JobLine(line=1, workflow=name),), {name: data}, stem


def _from_job_file(request: RenderRequest) -> tuple[tuple[JobLine, ...], dict[str, bytes], str]:
    name = str(request.job_file)
    lines = read_job_file(read_bytes(name, limit_bytes=JOB_FILE_LIMIT_BYTES), name=name)
    jobs = tuple(line.model_copy(update={"workflow": sibling(name, line.workflow)}) for line in lines)
    workflows = {
        path: read_bytes(path, limit_bytes=WORKFLOW_LIMIT_BYTES)
        for path in dict.fromkeys(job.workflow for job in jobs)
    }
    return jobs, workflows, Path(base_name(name)).stem


def _read_lock_bytes(request: RenderRequest) -> tuple[bytes | None, str]:
    if isinstance(request.lock, dict):
        return json.dumps(request.lock).encode(), "<inline lock>"
    if request.lock is not None:
        return read_bytes(request.lock, limit_bytes=LOCK_LIMIT_BYTES), request.lock
    beside = request.job_file or (request.workflow if isinstance(request.workflow, str) else None)
    if beside is None or is_address(beside):
        return None, "comfyfarm.lock"
    path = Path(sibling(beside, "comfyfarm.lock"))
    return (path.read_bytes() if path.is_file() else None), str(path)
