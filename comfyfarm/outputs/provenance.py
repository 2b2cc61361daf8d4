"""What a job's files came from: everything that is needed to make them again, as one stable JSON record."""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, JsonValue, NonNegativeFloat, NonNegativeInt

from comfyfarm import __version__
from comfyfarm.cache.pinned import Placed
from comfyfarm.ids import JobId, Sha256
from comfyfarm.ledger.records import AttemptRecord, JobRecord


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UsedModel(_Record):
    """A model file that the workflow names."""

    folder: str
    path: str
    sha256: Sha256


class UsedServer(_Record):
    """The ComfyUI server that rendered."""

    host: str
    """Host and port; the rest of its address may hold a password."""
    version: str | None = None
    """Of ComfyUI, from `/system_stats`."""
    device: str | None = None
    """Such as `cuda:0 NVIDIA GeForce RTX 4090`."""
    identity: str | None = None
    """Of this life of the process: tells it from an earlier one on the same port."""


class Timings(_Record):
    """Of the attempt that made the files, in Unix seconds of the ledger's clock."""

    queued: float | None = None
    """When the server was asked to take the prompt; None where only the run is known."""
    started: float | None = None
    ended: float | None = None
    seconds: NonNegativeFloat | None = None
    """That the job took, as the ledger counts them."""


class ProducedFile(_Record):
    """A file beside this record."""

    path: str
    sha256: Sha256
    size: NonNegativeInt
    """Bytes."""


class Provenance(_Record):
    """`<job id>/provenance.json`."""

    format: Literal[1] = 1
    job: JobId
    batch: str
    workflow_sha256: Sha256
    """Digest of the workflow as the user wrote it, before overrides."""
    lock_sha256: Sha256 | None
    """Digest of the lock; None when the workflow needs none."""
    overrides: dict[str, JsonValue]
    """`node.input` to value."""
    models: tuple[UsedModel, ...]
    server: UsedServer | None
    attempts: NonNegativeInt
    timings: Timings
    files: tuple[ProducedFile, ...]
    comfyfarm: str = __version__


def make_provenance(
    job: JobRecord, attempts: Sequence[AttemptRecord], *, models: Sequence[Placed], lock_digest: str | None
) -> bytes:
    """The record of a rendered job, from what the ledger knows of it.

    Args:
        job: with its files.
        attempts: all of the job's; the last that succeeded made the files.
        models: what the lock pins for the workflow.
        lock_digest: SHA-256 of the lock; None or empty when the workflow needs none.
    """
    made = next((one for one in reversed(attempts) if one.verdict == "succeeded"), None)
    last = made or (attempts[-1] if attempts else None)
    return provenance(
        Provenance(
            job=job.id,
            batch=job.batch,
            workflow_sha256=job.graph_digest,
            lock_sha256=lock_digest or None,
            overrides={str(override): override.value for override in job.overrides},
            models=tuple(UsedModel(folder=one.folder, path=one.path, sha256=one.sha256) for one in models),
            server=_server(last),
            attempts=job.attempts,
            timings=Timings(
                started=last.started if last else None,
                ended=last.ended if last else None,
                seconds=job.seconds,
            ),
            files=tuple(ProducedFile(path=one.path, sha256=one.sha256, size=one.size) for one in job.files),
        )
    )


def provenance(record: Provenance) -> bytes:
    """The record as JSON: keys and lists sorted, so that equal records are equal bytes."""
    ordered = record.model_copy(
        update={
            "overrides": dict(sorted(record.overrides.items())),
            "models": tuple(
                sorted(record.models, key=lambda model: (model.folder, model.path, model.sha256))
            ),
            "files": tuple(sorted(record.files, key=lambda file: file.path)),
        }
    )
    return (ordered.model_dump_json(indent=2) + "\n").encode()


def server_host(url: str) -> str:
    """Host and port of a server's address, without user, password, path or query."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _server(attempt: AttemptRecord | None) -> UsedServer | None:
    if attempt is None:
        return None
    return UsedServer(
        host=server_host(attempt.server_url),
        version=attempt.server_version or None,
        device=attempt.device or None,
        identity=attempt.server_identity or None,
    )
