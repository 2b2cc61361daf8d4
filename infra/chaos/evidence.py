"""What the verdict goes by: the ledger, the servers' journals, and the files that came out."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import AttemptRecord, JobRecord
from comfyfarm.outputs.names import PROVENANCE


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Execution(_Value):
    """One run of a prompt, as the journal of its server has it. Times are Unix seconds."""

    server: str
    prompt_id: str
    client_id: str
    received: float
    started: float
    ended: float | None
    end: str | None
    """`success`, `error` or `interrupted`; None when its server did not live to see it."""


class Kept(_Value):
    """A file below the output folder."""

    path: str
    sha256: str
    size: int
    of_job: str | None
    """The job for which the server made it, by its own words; None for what is no picture."""


class Said(_Value):
    """What the provenance beside a job's files says."""

    job: str
    attempts: int
    files: tuple[tuple[str, str], ...]
    """Path and SHA-256 of each, sorted."""


class Evidence(_Value):
    """All of it, after the batch."""

    jobs: tuple[JobRecord, ...]
    attempts: tuple[AttemptRecord, ...]
    """Of all jobs, each job's oldest first."""
    executions: tuple[Execution, ...]
    files: tuple[Kept, ...]
    provenances: tuple[Said, ...]

    def attempts_of(self, job_id: str) -> tuple[AttemptRecord, ...]:
        """The attempts of one job, oldest first."""
        return tuple(one for one in self.attempts if one.job_id == job_id)


async def gather(ledger: Ledger, batch: str, *, journals: Iterable[tuple[str, Path]], out: Path) -> Evidence:
    """Read everything; the journals by the addresses of their servers."""
    jobs = await ledger.jobs(batch)
    attempts = [one for job in jobs for one in await ledger.attempts(JobId(job.id))]
    executions = [one for server, path in journals for one in read_journal(path, server=server)]
    return Evidence(
        jobs=jobs,
        attempts=tuple(attempts),
        executions=tuple(executions),
        files=tuple(read_files(out)),
        provenances=tuple(map(read_provenance, sorted(out.glob(f"*/{PROVENANCE}")))),
    )


def read_journal(path: Path, *, server: str) -> Sequence[Execution]:
    """The prompts that began to run, earlier lives of the server included."""
    entries: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        if line.startswith("{") and line.endswith("}"):  # the last one of a life may be cut
            event = json.loads(line)
            entries.setdefault(event.pop("key"), {}).update(event)
    blank = {"ended": None, "end": None}
    return [Execution(server=server, **(blank | entry)) for entry in entries.values() if entry.get("started")]


def read_files(out: Path) -> Iterable[Kept]:
    """Every file below the output folder."""
    for path in sorted(out.rglob("*")) if out.is_dir() else ():
        if path.is_file():
            data = path.read_bytes()
            yield Kept(
                path=path.relative_to(out).as_posix(),
                sha256=hashlib.sha256(data).hexdigest(),
                size=len(data),
                of_job=_job_in(path) if path.suffix == ".png" else None,
            )


def read_provenance(path: Path) -> Said:
    """The record beside a job's files."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    files = sorted((file["path"], file["sha256"]) for file in raw["files"])
    return Said(job=raw["job"], attempts=raw["attempts"], files=tuple(files))


def _job_in(path: Path) -> str | None:
    """The job whose prefix stands in the graph that the server wrote into the picture."""
    with Image.open(path) as image:
        text = image.info.get("prompt")
    graph = json.loads(text) if isinstance(text, str) else {}
    prefixes = (str(node["inputs"].get("filename_prefix", "")) for node in graph.values())
    return next((prefix.partition("/")[0] for prefix in prefixes if prefix), None)
