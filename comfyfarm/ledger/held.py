"""Conditions that statements share, with their parameters: who holds a job, and that nobody does.

Statements are built once, when a module is loaded: building one costs four times what running it does.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, bindparam, case, null, or_

from comfyfarm.ledger.records import Claim, Turn
from comfyfarm.ledger.schema import db_now, jobs

IS_HELD = and_(
    jobs.c.id == bindparam("held_id"),
    jobs.c.token == bindparam("held_token"),
    jobs.c.owner == bindparam("held_owner"),
)
"""Guards each write of an owner: its claim is the newest and not given back. See `held_by`."""

NOBODYS: dict[str, Any] = {"owner": null(), "lease_until": null()}
"""Values of a job that is free, or finished."""

OVER: dict[str, Any] = {**NOBODYS, "turn": Turn.OVER.value, "ended": db_now()}
"""Values of a job that just finished."""

AGAIN: Any = case(
    (jobs.c.spool.is_not(None), Turn.RENDERED.value),
    (jobs.c.open_attempt.is_not(None), Turn.FOLLOW.value),
    else_=Turn.BEGIN.value,
)
"""The turn of a job that is to be handed out again."""


def held_by(claim: Claim) -> dict[str, Any]:
    """The parameters of `IS_HELD`."""
    return {"held_id": claim.job_id, "held_token": int(claim.token), "held_owner": claim.owner}


def is_free(dead_owners: Sequence[str] = ()) -> Any:
    """The condition that nobody holds a job: no owner, a lease that ended, or an owner known dead."""
    free = or_(jobs.c.owner.is_(None), jobs.c.lease_until < db_now())
    return or_(free, jobs.c.owner.in_(dead_owners)) if dead_owners else free
