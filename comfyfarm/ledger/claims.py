"""Claims: who may run a job, for how long, and which of two owners is the later one."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    case,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from comfyfarm.ids import JobId
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.expiry import expire_jobs
from comfyfarm.ledger.held import IS_HELD, NOBODYS, held_by, is_free
from comfyfarm.ledger.jobs import owners_of, with_files
from comfyfarm.ledger.records import Claim, JobRecord, Status, Turn
from comfyfarm.ledger.schema import db_now, jobs

_RENEWED_AT_ONCE = 5000  # claims; a statement may have some 32,000 parameters
LEASE_S = 60.0
"""How long a claim lives without being renewed, in seconds of the database's clock."""

Taken = tuple[JobRecord, Claim]


class Claims(Database):
    """The part of the ledger that gives jobs to owners."""

    async def take(
        self,
        batch: str,
        owner: str,
        limit: int,
        *,
        dead_owners: Sequence[str] = (),
        is_gone: Callable[[str], bool] | None = None,
        on_late: Callable[[Sequence[JobRecord]], None] | None = None,
    ) -> tuple[Taken, ...]:
        """Claim up to `limit` free jobs of a batch in one transaction. No two calls get the same job.

        First jobs that are rendered, then jobs with an open attempt (they may still run on a
        server), then by priority, then in the order of the job file. Jobs whose deadline is over are
        not handed out: they are written dead when there are too few others.

        Args:
            batch: its name.
            owner: the caller, as `this_owner()` names it.
            limit: how many at most.
            dead_owners: those whose claims are free although their leases last.
            is_gone: finds more of them among all who hold jobs of the batch. Quick, and never blocks.
            on_late: told of the jobs that this call wrote dead.
        """
        if limit < 1:
            return ()

        def work(connection: Connection) -> tuple[tuple[JobRecord, ...], tuple[JobRecord, ...]]:
            gone = {*dead_owners, *_gone(connection, batch, owner, is_gone)}
            chosen = {"of_batch": batch, "most": limit, "taker": owner}
            rows = connection.execute(_taking(tuple(sorted(gone))), chosen).all()
            late = expire_jobs(connection, batch, gone) if len(rows) < limit else ()
            return with_files(connection, sorted(rows, key=_order_key)), late

        taken, late = await self._write(work)
        if late and on_late is not None:
            on_late(late)
        return _with_claims(taken, owner)

    async def renew(self, claims: Sequence[Claim]) -> frozenset[JobId]:
        """Lengthen the leases of all claims, thousands of them in one statement.

        Returns:
            The jobs whose claims are lost: nobody need wait for their attempts.
        """
        if not claims:
            return frozenset()

        def work(connection: Connection) -> frozenset[JobId]:
            kept: set[str] = set()
            for start in range(0, len(claims), _RENEWED_AT_ONCE):
                some = claims[start : start + _RENEWED_AT_ONCE]
                kept.update(connection.scalars(_renewing(some)).all())
            return frozenset(claim.job_id for claim in claims if claim.job_id not in kept)

        return await self._write(work)

    async def give_back(self, claim: Claim) -> None:
        """Let others take the job at once. A stale claim is no error: the job is others' already."""

        def work(connection: Connection) -> None:
            connection.execute(_GIVE_BACK, held_by(claim))

        await self._write(work)


def _renewing(claims: Sequence[Claim]) -> Any:
    mine = [(claim.job_id, claim.token, claim.owner) for claim in claims]
    return (
        update(jobs)
        .where(tuple_(jobs.c.id, jobs.c.token, jobs.c.owner).in_(mine))
        .values(lease_until=db_now() + LEASE_S)
        .returning(jobs.c.id)
    )


def _gone(
    connection: Connection, batch: str, owner: str, is_gone: Callable[[str], bool] | None
) -> tuple[str, ...]:
    if is_gone is None:
        return ()
    return tuple(name for name in owners_of(connection, batch) if name != owner and is_gone(name))


def _with_claims(records: Sequence[JobRecord], owner: str) -> tuple[Taken, ...]:
    return tuple((job, Claim(job_id=job.id, token=job.token, owner=owner)) for job in records)


def _claiming(which: ColumnElement[bool], dead_owners: Sequence[str] = ()) -> Any:
    # PostgreSQL locks and skips what others are taking, and keeps a CTE with FOR UPDATE apart, so
    # that LIMIT is counted once. SQLite leaves the lock words out and has one writer anyway.
    may_begin = or_(jobs.c.turn < Turn.BEGIN.value, jobs.c.deadline.is_(None), jobs.c.deadline > db_now())
    chosen = (
        select(jobs.c.id)
        .where(which, jobs.c.turn < Turn.OVER.value, may_begin, is_free(dead_owners))
        .order_by(jobs.c.turn, jobs.c.priority.desc(), jobs.c.position, jobs.c.id)
        .limit(bindparam("most"))
        .with_for_update(skip_locked=True)
        .cte("chosen")
    )
    running = case(
        (jobs.c.status == Status.PENDING.value, literal(Status.RUNNING.value)), else_=jobs.c.status
    )
    return (
        update(jobs)
        .where(jobs.c.id.in_(select(chosen.c.id)))
        .values(
            status=running,
            owner=bindparam("taker"),
            token=jobs.c.token + 1,
            lease_until=db_now() + LEASE_S,
        )
        .returning(jobs)
    )


_OF_BATCH = jobs.c.batch == bindparam("of_batch")
_TAKE = _claiming(_OF_BATCH)
_GIVE_BACK = (
    update(jobs)
    .where(IS_HELD)
    .values(
        **NOBODYS,
        status=case(
            (jobs.c.status == Status.RUNNING.value, literal(Status.PENDING.value)), else_=jobs.c.status
        ),
    )
)


def _taking(dead_owners: Sequence[str]) -> Any:
    return _claiming(_OF_BATCH, dead_owners) if dead_owners else _TAKE


def _order_key(row: Any) -> tuple[int, int, int, str]:
    return (row.turn, -row.priority, row.position, row.id)
