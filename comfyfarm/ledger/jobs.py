"""Reading jobs and attempts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from comfyfarm.errors import UsageError
from comfyfarm.ids import JobId
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.records import (
    UNFINISHED,
    AttemptRecord,
    JobRecord,
    OutputFile,
    attempt_record,
    job_record,
)
from comfyfarm.ledger.schema import attempts, jobs, outputs


class Jobs(Database):
    """The part of the ledger that shows jobs."""

    async def jobs(self, batch: str) -> tuple[JobRecord, ...]:
        """All jobs of a batch with their files, in the order of the job file."""
        found = jobs.c.batch == batch

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            rows = connection.execute(select(jobs).where(found).order_by(jobs.c.position, jobs.c.id))
            return with_files(connection, rows.all(), found)

        return await self._read(work)

    async def job(self, job_id: JobId) -> JobRecord:
        """One job with its files.

        Raises:
            UsageError: the ledger has no such job.
        """
        found = jobs.c.id == job_id

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            rows = connection.execute(select(jobs).where(found))
            return with_files(connection, rows.all(), found)

        records = await self._read(work)
        if not records:
            raise UsageError(f"the ledger {self.shown} has no job {job_id}")
        return records[0]

    async def evidence(self, job_id: JobId) -> str:
        """What was kept with the dead letter: body, traceback, last messages. Empty if there is none."""

        def work(connection: Connection) -> str:
            found = connection.scalar(select(jobs.c.evidence).where(jobs.c.id == job_id))
            return str(found or "")

        return await self._read(work)

    async def attempts(self, job_id: JobId) -> tuple[AttemptRecord, ...]:
        """All attempts of a job, oldest first; those before a requeue have `counts` false."""
        query = (
            select(attempts, jobs.c.attempts_before)
            .join(jobs, jobs.c.id == attempts.c.job)
            .where(attempts.c.job == job_id)
            .order_by(attempts.c.number)
        )

        def work(connection: Connection) -> tuple[AttemptRecord, ...]:
            rows = (connection.execute(query)).all()
            return tuple(attempt_record(row, counts=row.number > row.attempts_before) for row in rows)

        return await self._read(work)

    async def counts(self, batch: str) -> dict[str, int]:
        """How many jobs of the batch have each status; statuses without jobs are left out."""
        query = select(jobs.c.status, func.count()).where(jobs.c.batch == batch).group_by(jobs.c.status)

        def work(connection: Connection) -> dict[str, int]:
            return {row[0]: row[1] for row in (connection.execute(query)).all()}

        return await self._read(work)

    async def owners(self, batch: str) -> tuple[str, ...]:
        """Who holds unfinished jobs of the batch, so that the caller can find the dead among them."""
        query = (
            select(jobs.c.owner)
            .where(jobs.c.batch == batch, jobs.c.status.in_(UNFINISHED), jobs.c.owner.is_not(None))
            .distinct()
        )

        def work(connection: Connection) -> tuple[str, ...]:
            return tuple(sorted((connection.scalars(query)).all()))

        return await self._read(work)


def with_files(
    connection: Connection, rows: Sequence[Any], found: ColumnElement[bool] | None
) -> tuple[JobRecord, ...]:
    """Job rows as records with their files; `found` chooses the jobs that have any, None if none has."""
    files: dict[str, list[OutputFile]] = defaultdict(list)
    if found is None:
        return tuple(job_record(row) for row in rows)
    query = select(outputs).where(outputs.c.job.in_(select(jobs.c.id).where(found)))
    for row in (connection.execute(query)).all():
        files[row.job].append(OutputFile(path=row.path, sha256=row.sha256, size=row.size))
    return tuple(
        job_record(row, tuple(sorted(files.get(row.id, ()), key=lambda file: file.path))) for row in rows
    )
