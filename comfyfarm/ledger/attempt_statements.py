"""What an owner's writes say to the database, built once."""

from typing import Any

from sqlalchemy import bindparam, case, delete, func, insert, null, select, update

from comfyfarm.ledger.held import IS_HELD, OVER
from comfyfarm.ledger.records import Status, Turn
from comfyfarm.ledger.schema import attempts, db_now, jobs, outputs

_HELD = update(jobs).where(IS_HELD)
BEGIN = _HELD.values(
    status=Status.RUNNING.value,
    server_url=bindparam("on_server"),
    spool=null(),
    attempts_made=jobs.c.attempts_made + 1,
    started=func.coalesce(jobs.c.started, db_now()),
).returning(jobs.c.attempts_made, jobs.c.open_attempt)
OPENED = (
    update(jobs)
    .where(jobs.c.id == bindparam("of_job"))
    .values(open_attempt=bindparam("attempt"), turn=Turn.FOLLOW.value)
)
ENDED = _HELD.values(
    open_attempt=null(),
    turn=case((jobs.c.turn == Turn.RENDERED.value, Turn.RENDERED.value), else_=Turn.BEGIN.value),
    reason_class=bindparam("class_"),
    reason=bindparam("why"),
)
RENDERED = _HELD.values(
    status=Status.RENDERED.value,
    turn=Turn.RENDERED.value,
    spool=bindparam("in_spool"),
    seconds=bindparam("took_s"),
    open_attempt=null(),
    reason_class=null(),
    reason="",
).returning(jobs)
UPLOAD_FAILED = _HELD.values(
    upload_failures=jobs.c.upload_failures + 1, reason_class="upload", reason=bindparam("why")
)
SUCCEED = _HELD.where(jobs.c.status == Status.RENDERED.value).values(
    **OVER, status=Status.SUCCEEDED.value, open_attempt=null(), reason_class=null(), reason="", spool=null()
)
BURY = _HELD.values(
    **OVER,
    status=Status.DEAD.value,
    open_attempt=null(),
    reason_class=bindparam("class_"),
    reason=bindparam("why"),
    evidence=bindparam("kept_evidence"),
)
CANCEL = _HELD.values(
    **OVER,
    status=Status.CANCELLED.value,
    open_attempt=null(),
    reason_class="cancelled",
    reason=bindparam("why"),
)
IS_ALREADY = select(jobs.c.id).where(
    jobs.c.id == bindparam("of_job"),
    jobs.c.token == bindparam("with_token"),
    jobs.c.status == bindparam("already"),
)

_ATTEMPT = update(attempts).where(
    attempts.c.id == bindparam("attempt"), attempts.c.job == bindparam("of_job")
)
SUBMITTED = _ATTEMPT.where(select(jobs.c.id).where(IS_HELD).exists()).values(
    prompt_number=bindparam("as_number")
)
END: dict[str, Any] = {
    "verdict": None, "reason": None, "message": "", "evidence": "", "device": "", "server_version": "",
}  # fmt: skip
_ENDING = _ATTEMPT.values(
    ended=func.coalesce(attempts.c.ended, db_now()), **{name: bindparam(f"end_{name}") for name in END}
)
# What an attempt came to is written once. A success may be told again, when its answer was lost, and be given
# up, when its files are.
GIVE_UP_ATTEMPT = _ENDING
END_ATTEMPT = _ENDING.where(attempts.c.verdict.is_(None))
SUCCEED_ATTEMPT = _ENDING.returning(attempts)
NEW_ATTEMPT = (
    insert(attempts)
    .values(
        started=db_now(),
        **{
            name: bindparam(name)
            for name in ("job", "number", "token", "server_url", "server_identity", "client_id")
        },
    )
    .returning(attempts)
)
DROP_FILES = delete(outputs).where(outputs.c.job == bindparam("of_job"))
NEW_FILES = insert(outputs)
