"""Reading jobs and attempts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from comfyfarm.errors import UsageError
from comfyfarm.ids import JobId
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.records import (
    AttemptRecord,
    JobRecord,
    OutputFile,
    Status,
    attempt_record,
    job_record,
)
from comfyfarm.ledger.schema import attempts, jobs, outputs

_JOBS = select(jobs).where(jobs.c.batch == bindparam("batch")).order_by(jobs.c.position, jobs.c.id)
_JOB = select(jobs).where(jobs.c.id == bindparam("job"))
_FILES_OF_BATCH = select(outputs).join(jobs).where(jobs.c.batch == bindparam("batch"))
_FILES_OF_JOB = select(outputs).where(outputs.c.job == bindparam("job"))
_EVIDENCE = select(jobs.c.evidence).where(jobs.c.id == bindparam("job"))
_ATTEMPTS = (
    select(attempts, jobs.c.attempts_before)
    .join(jobs, jobs.c.id == attempts.c.job)
    .where(attempts.c.job == bindparam("job"))
    .order_by(attempts.c.number)
)
_COUNTS = (
    select(jobs.c.status, func.count()).where(jobs.c.batch == bindparam("batch")).group_by(jobs.c.status)
)
# Finished jobs have no owner.
_OWNERS = select(jobs.c.owner).where(jobs.c.batch == bindparam("batch"), jobs.c.owner.is_not(None)).distinct()


class Jobs(Database):
    """The part of the ledger that shows jobs."""

    async def jobs(self, batch: str) -> tuple[JobRecord, ...]:
        """All jobs of a batch with their files, in the order of the job file."""

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            rows = connection.execute(_JOBS, {"batch": batch}).all()
            files: dict[str, list[Any]] = defaultdict(list)
            for file in connection.execute(_FILES_OF_BATCH, {"batch": batch}):
                files[file.job].append(file)
            return tuple(job_record(row, _sorted_files(files.get(row.id, ()))) for row in rows)

        return await self._read(work)

    async def job(self, job_id: JobId) -> JobRecord:
        """One job with its files.

        Raises:
            UsageError: the ledger has no such job.
        """

        def work(connection: Connection) -> JobRecord | None:
            row = connection.execute(_JOB, {"job": job_id}).one_or_none()
            return None if row is None else job_record(row, _files(connection, row))

        record = await self._read(work)
        if record is None:
            raise UsageError(f"the ledger {self.shown} has no job {job_id}")
        return record

    async def evidence(self, job_id: JobId) -> str:
        """What was kept with the dead letter: body, traceback, last messages. Empty if there is none."""

        def work(connection: Connection) -> str:
            return str(connection.scalar(_EVIDENCE, {"job": job_id}) or "")

        return await self._read(work)

    async def attempts(self, job_id: JobId) -> tuple[AttemptRecord, ...]:
        """All attempts of a job, oldest first; those before a requeue have `counts` false."""

        def work(connection: Connection) -> tuple[AttemptRecord, ...]:
            rows = connection.execute(_ATTEMPTS, {"job": job_id}).all()
            return tuple(attempt_record(row, counts=row.number > row.attempts_before) for row in rows)

        return await self._read(work)

    async def counts(self, batch: str) -> dict[str, int]:
        """How many jobs of the batch have each status; statuses without jobs are left out."""

        def work(connection: Connection) -> dict[str, int]:
            return {row[0]: row[1] for row in connection.execute(_COUNTS, {"batch": batch}).all()}

        return await self._read(work)


def owners_of(connection: Connection, batch: str) -> tuple[str, ...]:
    """Who holds unfinished jobs of the batch, so that the caller can find the dead among them."""
    return tuple(sorted(connection.scalars(_OWNERS, {"batch": batch}).all()))


def with_files(connection: Connection, rows: Sequence[Any]) -> tuple[JobRecord, ...]:
    """A few rows of jobs as records. Pending and running ones are not asked for files."""
    no_files = (Status.PENDING, Status.RUNNING)
    return tuple(job_record(row, () if row.status in no_files else _files(connection, row)) for row in rows)


def _files(connection: Connection, row: Any) -> tuple[OutputFile, ...]:
    return _sorted_files(connection.execute(_FILES_OF_JOB, {"job": row.id}).all())


def _sorted_files(rows: Iterable[Any]) -> tuple[OutputFile, ...]:
    files = (OutputFile(path=row.path, sha256=row.sha256, size=row.size) for row in rows)
    return tuple(sorted(files, key=lambda file: file.path))
