"""What the ledger hands out: frozen values, one for each kind of row."""

import json
from enum import IntEnum, StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from comfyfarm.ids import JobId, LeaseToken, Sha256
from comfyfarm.ledger.schema import jobs
from comfyfarm.plan.job import Override
from comfyfarm.plan.job_settings import JobSettings

OVERRIDES: TypeAdapter[tuple[Override, ...]] = TypeAdapter(tuple[Override, ...])


class Status(StrEnum):
    """How far a job is. Values are stored, so none is ever renamed."""

    PENDING = "pending"
    RUNNING = "running"
    """Claimed by an owner; free again when its lease has ended."""
    RENDERED = "rendered"
    """The files are kept on the host, not yet synced."""
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


UNFINISHED = (Status.PENDING, Status.RUNNING, Status.RENDERED)
FINISHED = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)


class Turn(IntEnum):
    """Which jobs are handed out first; within a turn by priority, then as the job file has them."""

    RENDERED = 0
    FOLLOW = 1
    """An attempt is open: its prompt may still run on a server."""
    BEGIN = 2
    OVER = 3
    """Finished: not handed out."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Claim(_Record):
    """The exclusive right to run a job, as long as the token is the newest."""

    job_id: JobId
    token: LeaseToken
    owner: str


class OutputFile(_Record):
    """A file that a job made."""

    path: str
    """Relative to the job's folder, with `/` separators."""
    sha256: Sha256
    size: int
    """Bytes."""


class BatchRecord(_Record):
    """Jobs submitted together."""

    name: str
    out: str
    """Where outputs go: a folder or `s3://bucket/prefix`."""
    tenant: str = ""
    priority: int = 0
    parameters_json: str = "{}"
    """What the batch was started with, as a JSON object. Text, because frozen is shallow."""
    created: float | None = None
    """Unix seconds; None until the ledger has it."""

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """The parameters, read anew on each call."""
        read: dict[str, JsonValue] = json.loads(self.parameters_json)
        return read


class JobRecord(JobSettings):
    """A job as the ledger knows it."""

    id: JobId
    batch: str
    position: int
    status: Status
    graph_digest: Sha256
    overrides: tuple[Override, ...]
    content_digest: Sha256
    reason: str = ""
    reason_class: str | None = None
    server_url: str | None = None
    """The server that had it last."""
    seconds: float | None = None
    attempts: int = 0
    """Attempts begun since the job was made or last requeued."""
    attempts_made: int = 0
    """Attempts begun ever; none: there is nothing to read in `Ledger.attempts`."""
    upload_failures: int = 0
    spool: str | None = None
    """Folder with the rendered files that are not yet synced."""
    files: tuple[OutputFile, ...] = ()
    """Sorted by path."""
    token: LeaseToken = LeaseToken(0)
    owner: str | None = None
    started: float | None = None
    """Unix seconds of the first attempt that counts."""
    ended: float | None = None
    """Unix seconds at which the job became succeeded, dead or cancelled."""


class AttemptRecord(_Record):
    """One try of a job on one server. No `ended`: it may still be running there."""

    id: int
    job_id: JobId
    number: int
    """From 1, over all processes and requeues."""
    token: LeaseToken
    server_url: str
    server_identity: str
    """Boot identity of the server process: another one has forgotten the prompt."""
    client_id: str
    prompt_number: int | None = None
    """ComfyUI's `number` in the answer to the submission; None before it."""
    device: str = ""
    server_version: str = ""
    started: float
    ended: float | None = None
    verdict: str | None = None
    """`succeeded`, `transient` or `permanent`; None while open, or when it was abandoned."""
    reason: str | None = None
    message: str = ""
    evidence: str = ""
    counts: bool = True
    """False for attempts before the last requeue: no retry limit counts them."""


class ServerRecord(_Record):
    """A living ComfyUI server."""

    url: str
    host: str
    device: str
    """As in `/system_stats`."""
    model: str
    """Slug of the device name, or `cpu`."""


class ShardRecord(_Record):
    """A stretch of a batch on a host: the row by which it waits for its turn."""

    id: str
    batch: str
    host: str
    owner: str
    waiting_since: float
    started: float | None = None
    ended: float | None = None


def overrides_text(overrides: tuple[Override, ...]) -> str:
    """Overrides as they are stored."""
    return OVERRIDES.dump_json(overrides).decode()


def settings_columns(settings: JobSettings) -> dict[str, Any]:
    """A job's settings as they are stored."""
    return settings.settings | {"deadlines": json.dumps(dict(settings.deadlines), sort_keys=True)}


_COLUMNS = tuple(name for name in JobRecord.model_fields if name in jobs.c)
"""What a record has just as the row has it, or almost."""


def job_record(row: Any, files: tuple[OutputFile, ...] = ()) -> JobRecord:
    """A row of `jobs` as a value."""
    columns = row._mapping
    fields = {name: columns[name] for name in _COLUMNS}
    fields["overrides"] = OVERRIDES.validate_json(fields["overrides"])
    fields["deadlines"] = json.loads(fields["deadlines"])
    return JobRecord(attempts=row.attempts_made - row.attempts_before, files=files, **fields)


def attempt_record(row: Any, *, counts: bool = True) -> AttemptRecord:
    """A row of `attempts` as a value."""
    fields = dict(row._mapping)
    fields.pop("attempts_before", None)
    return AttemptRecord(job_id=fields.pop("job"), counts=counts, **fields)
