"""The rows that people and scripts see: one for each job of a batch, from the ledger."""

import csv
import io
import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from comfyfarm.addresses import mask
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import JobRecord, OutputFile
from comfyfarm.plan.job import JobSpec
from comfyfarm.run.outcome import Reason

_TRANSIENT = {Reason.OOM, Reason.SERVER, Reason.INTERRUPTED, Reason.CRASH, Reason.DEADLINE, Reason.UPLOAD}


class ResultRow(BaseModel):
    """One job as `render --json` and `results` print it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    parameters: dict[str, object]
    status: str
    """`pending`, `succeeded`, `dead` or `cancelled`."""
    server: str | None
    attempts: int
    seconds: float | None
    """Of execution, by the server's clock."""
    reason: str
    reason_class: str | None
    files: tuple[OutputFile, ...]

    def as_json(self) -> str:
        """One line, with the fields that the contract names."""
        return json.dumps(self.model_dump(mode="json", exclude={"parameters", "reason_class"}))


def row_of(job: JobRecord) -> ResultRow:
    """A ledger row as the outside sees it: `running` and `rendered` are still `pending` there."""
    waits_for_upload = job.status == "rendered"
    return ResultRow(
        id=job.id,
        parameters={str(one): one.value for one in job.overrides},
        status="pending" if job.status in {"running", "rendered"} else job.status,
        server=mask(job.server_url) if job.server_url else None,
        attempts=job.attempts,
        seconds=round(job.seconds, 3) if job.seconds is not None else None,
        reason="not uploaded" if waits_for_upload else (job.reason or ""),
        reason_class=job.reason_class,
        files=job.files if job.status in {"succeeded", "rendered"} else (),
    )


async def rows_of(ledger: Ledger, batch: str, jobs: Iterable[JobSpec]) -> list[ResultRow]:
    """The rows of these jobs, in the batch's order: it may have grown by other calls."""
    ours = {job.id for job in jobs}
    return [row_of(job) for job in await ledger.jobs(batch) if job.id in ours]


def exit_code(rows: Iterable[ResultRow]) -> int:
    """0 all succeeded; 1 any dead for a permanent reason, or cancelled; 3 the others may pass later."""
    code = 0
    for row in rows:
        if row.status == "cancelled" or (row.status == "dead" and row.reason_class not in _TRANSIENT):
            return 1
        if row.status != "succeeded":
            code = 3
    return code


def as_csv(rows: Iterable[ResultRow]) -> str:
    """A table with a header: job, parameters, status, server, attempts, seconds, files, reason."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["job", "parameters", "status", "server", "attempts", "seconds", "files", "reason"])
    for row in rows:
        files = " ".join(f"{file.path} sha256:{file.sha256}" for file in row.files)
        seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
        parameters = json.dumps(row.parameters, sort_keys=True, separators=(",", ":"))
        table.writerow(
            [row.id, parameters, row.status, row.server or "", row.attempts, seconds, files, row.reason]
        )
    return text.getvalue()
