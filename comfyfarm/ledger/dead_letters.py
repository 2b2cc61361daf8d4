"""Dead letters: the jobs that a person must look at, and what may be done with them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Update, case, func, literal, null, select, update

from comfyfarm.ids import JobId
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.held import AGAIN
from comfyfarm.ledger.jobs import with_files
from comfyfarm.ledger.records import JobRecord, Status
from comfyfarm.ledger.schema import db_now, jobs

DROPPED = "dropped: "
"""How the reason of a job begins that a person decided to do without."""


class DeadLetters(Database):
    """The part of the ledger that keeps what will not be tried again until a person says so."""

    async def dead_letters(self, batch: str | None = None) -> tuple[JobRecord, ...]:
        """All dead jobs, of one batch or of all, in the order in which they died."""
        query = (
            select(jobs)
            .where(jobs.c.status == Status.DEAD.value)
            .order_by(jobs.c.ended, jobs.c.position, jobs.c.id)
        )
        if batch is not None:
            query = query.where(jobs.c.batch == batch)

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            return with_files(connection, connection.execute(query).all())

        return await self._read(work)

    async def find_jobs(self, start: str) -> tuple[JobRecord, ...]:
        """The jobs whose ids begin with `start`, at most ten."""
        query = select(jobs).where(func.substr(jobs.c.id, 1, len(start)) == start)

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            return with_files(connection, connection.execute(query.order_by(jobs.c.id).limit(10)).all())

        return await self._read(work)

    async def requeue(self, batch: str, job_ids: Sequence[JobId] | None = None) -> int:
        """Make dead and cancelled jobs pending again; their attempts stay, but count no more.

        A job that died with its files still kept becomes `rendered`: only its upload is done again.

        Returns:
            How many were requeued.
        """
        return await self._change(_of(_REQUEUE, batch, job_ids))

    async def drop(self, batch: str, job_ids: Sequence[JobId] | None = None, *, why: str = "") -> int:
        """Do without dead jobs: they become cancelled, and keep their evidence and former reason.

        Returns:
            How many were dropped.
        """
        because = literal(f"{DROPPED}{why} (") + jobs.c.reason + literal(")") if why else None
        reason = because if because is not None else literal(DROPPED) + jobs.c.reason
        return await self._change(_of(_DROP.values(reason=reason), batch, job_ids))

    async def _change(self, statement: Update) -> int:
        """How many rows changed."""
        return await self._write(lambda connection: connection.execute(statement).rowcount)


def _of(statement: Update, batch: str, job_ids: Sequence[JobId] | None) -> Any:
    statement = statement.where(jobs.c.batch == batch)
    return statement if job_ids is None else statement.where(jobs.c.id.in_(job_ids))


_REQUEUE = (
    update(jobs)
    .where(jobs.c.status.in_((Status.DEAD.value, Status.CANCELLED.value)))
    .values(
        status=case((jobs.c.spool.is_not(None), Status.RENDERED.value), else_=Status.PENDING.value),
        turn=AGAIN,
        attempts_before=jobs.c.attempts_made,
        upload_failures=0,
        token=jobs.c.token + 1,
        reason_class=null(),
        reason="",
        evidence="",
        started=null(),
        ended=null(),
        seconds=null(),
    )
)
_DROP = (
    update(jobs)
    .where(jobs.c.status == Status.DEAD.value)
    .values(status=Status.CANCELLED.value, reason_class="cancelled", ended=db_now())
)
