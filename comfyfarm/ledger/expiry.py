"""Jobs whose deadline is over before they were begun: dead letters, with that as the reason."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from comfyfarm.ledger.held import OVER, is_free
from comfyfarm.ledger.records import JobRecord, Status, Turn, job_record
from comfyfarm.ledger.schema import db_now, jobs

REASON_CLASS = "too late"


def expire_jobs(connection: Connection, batch: str, dead_owners: Collection[str]) -> tuple[JobRecord, ...]:
    """Write dead the jobs of a batch whose deadline is over, that nobody holds and no server has.

    Returns:
        Them.
    """
    query = _finding(tuple(dead_owners)) if dead_owners else _FIND
    found = connection.execute(query, {"batch": batch}).all()
    late = [{"late_id": row.id, "why": _reason(row.deadline)} for row in found]
    return tuple(job_record(connection.execute(_EXPIRE, values).one()) for values in late)


def _finding(dead_owners: Sequence[str] = ()) -> Any:
    # What is begun, rendered or finished has another turn.
    is_late = (jobs.c.turn == Turn.BEGIN.value) & (jobs.c.deadline <= db_now())
    return (
        select(jobs.c.id, jobs.c.deadline)
        .where(jobs.c.batch == bindparam("batch"), is_late, is_free(dead_owners))
        .with_for_update(skip_locked=True)
    )


def _reason(deadline: float) -> str:
    moment = datetime.fromtimestamp(deadline, UTC)
    return f"{REASON_CLASS}: not begun by {moment.isoformat(sep=' ', timespec='seconds')}"


_FIND = _finding()
_EXPIRE = (
    update(jobs)
    .where(jobs.c.id == bindparam("late_id"))
    .values(status=Status.DEAD.value, reason_class=REASON_CLASS, reason=bindparam("why"), **OVER)
    .returning(jobs)
)
