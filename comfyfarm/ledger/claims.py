"""Claims: who may run a job, for how long, and which of two owners is the later one."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, literal, null, select, tuple_, update

from comfyfarm.ids import JobId
from comfyfarm.ledger.batches import is_free
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.jobs import with_files
from comfyfarm.ledger.records import UNFINISHED, Claim, JobRecord, Status
from comfyfarm.ledger.schema import db_now, jobs

LEASE_S = 60.0
"""How long a claim lives without being renewed, in seconds of the database's clock."""

Taken = tuple[JobRecord, Claim]


class Claims(Database):
    """The part of the ledger that gives jobs to owners."""

    async def take(
        self, batch: str, owner: str, limit: int, *, dead_owners: Sequence[str] = ()
    ) -> tuple[Taken, ...]:
        """Claim up to `limit` free jobs of a batch in one statement.

        First jobs that are rendered, then jobs with an open attempt (they may still run on a
        server), then in the order of the job file. No two calls ever get the same job.
        """
        return await self._claim(jobs.c.batch == batch, owner, limit, dead_owners)

    async def claim(self, job_id: JobId, owner: str, *, dead_owners: Sequence[str] = ()) -> Taken | None:
        """Claim one job; None when it is finished or somebody holds it."""
        taken = await self._claim(jobs.c.id == job_id, owner, 1, dead_owners)
        return taken[0] if taken else None

    async def _claim(
        self, which: ColumnElement[bool], owner: str, limit: int, dead_owners: Sequence[str]
    ) -> tuple[Taken, ...]:
        if limit < 1:
            return ()
        statement = _claiming(which, owner, limit, dead_owners)

        def work(connection: Connection) -> tuple[JobRecord, ...]:
            rows = sorted((connection.execute(statement)).all(), key=_order_key)
            rendered = [row.id for row in rows if row.status == Status.RENDERED]
            return with_files(connection, rows, jobs.c.id.in_(rendered) if rendered else None)

        records = await self._write(work)
        return tuple((job, Claim(job_id=job.id, token=job.token, owner=owner)) for job in records)

    async def renew(self, claims: Sequence[Claim]) -> frozenset[JobId]:
        """Lengthen the leases of all claims in one statement.

        Returns:
            The jobs whose claims are lost: their attempts must stop.
        """
        if not claims:
            return frozenset()
        mine = [(claim.job_id, claim.token, claim.owner) for claim in claims]
        statement = (
            update(jobs)
            .where(tuple_(jobs.c.id, jobs.c.token, jobs.c.owner).in_(mine))
            .values(lease_until=db_now() + LEASE_S)
            .returning(jobs.c.id)
        )

        def work(connection: Connection) -> frozenset[JobId]:
            kept = set((connection.scalars(statement)).all())
            return frozenset(claim.job_id for claim in claims if claim.job_id not in kept)

        return await self._write(work)

    async def give_back(self, claim: Claim) -> None:
        """Let others take the job at once. A stale claim is no error: the job is others' already."""
        statement = update(jobs).where(is_held(claim)).values(owner=null(), lease_until=null())
        statement = statement.values(
            status=case(
                (jobs.c.status == Status.RUNNING.value, literal(Status.PENDING.value)), else_=jobs.c.status
            )
        )

        def work(connection: Connection) -> None:
            connection.execute(statement)

        await self._write(work)


def is_held(claim: Claim) -> ColumnElement[bool]:
    """The condition that guards each write of an owner: the claim is the newest and not given back."""
    return and_(jobs.c.id == claim.job_id, jobs.c.token == int(claim.token), jobs.c.owner == claim.owner)


def _claiming(which: ColumnElement[bool], owner: str, limit: int, dead_owners: Sequence[str]) -> Any:
    # PostgreSQL locks and skips what others are taking, and keeps a CTE with FOR UPDATE apart, so
    # that LIMIT is counted once. SQLite leaves the lock words out and has one writer anyway.
    chosen = (
        select(jobs.c.id)
        .where(which, jobs.c.status.in_(UNFINISHED), is_free(dead_owners))
        .order_by(
            case((jobs.c.status == Status.RENDERED.value, 0), else_=1),
            case((jobs.c.open_attempt.is_not(None), 0), else_=1),
            jobs.c.position,
            jobs.c.id,
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    running = case(
        (jobs.c.status == Status.PENDING.value, literal(Status.RUNNING.value)), else_=jobs.c.status
    )
    return (
        update(jobs)
        .where(jobs.c.id.in_(select(chosen.c.id)))
        .values(status=running, owner=owner, token=jobs.c.token + 1, lease_until=db_now() + LEASE_S)
        .returning(jobs)
    )


def _order_key(row: Any) -> tuple[bool, bool, int, str]:
    return (row.status != Status.RENDERED, row.open_attempt is None, row.position, row.id)
