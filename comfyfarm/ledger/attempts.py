"""What an owner writes about its job. Every write is guarded by job, token and owner.

Zero rows changed means that the claim is lost: `StaleClaim`, and nothing of the call is kept.
A call that was kept although its answer was lost may be made again without harm.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, null, select, update

from comfyfarm.errors import StaleClaim
from comfyfarm.ledger.claims import is_held
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.records import AttemptRecord, Claim, OutputFile, Status, attempt_record
from comfyfarm.ledger.schema import attempts, db_now, jobs, outputs


class Attempts(Database):
    """The part of the ledger that an attempt writes to."""

    async def begin_attempt(
        self, claim: Claim, *, server_url: str, server_identity: str, client_id: str
    ) -> AttemptRecord:
        """Note on which server the job is about to be tried. Commit this before the prompt is sent.

        An earlier attempt that is still open is ended without a verdict. A rendered job is running
        again: its kept files are given up.

        Raises:
            StaleClaim: the claim is lost.
        """
        values = {
            "token": int(claim.token),
            "server_url": server_url,
            "server_identity": server_identity,
            "client_id": client_id,
        }

        def work(connection: Connection) -> AttemptRecord:
            before = (connection.execute(_beginning(claim, server_url))).one_or_none()
            if before is None:
                raise _stale(claim)
            if before.open_attempt is not None:
                _end(connection, claim, before.open_attempt, {"message": "given up"})
            number = before.attempts_made
            statement = insert(attempts).values(job=claim.job_id, number=number, started=db_now(), **values)
            row = (connection.execute(statement.returning(attempts))).one()
            opened = update(jobs).where(jobs.c.id == claim.job_id).values(open_attempt=row.id)
            connection.execute(opened)
            return attempt_record(row)

        return await self._write(work)

    async def submitted(self, claim: Claim, attempt_id: int, prompt_number: int) -> None:
        """Note the `number` under which the server took the prompt.

        Raises:
            StaleClaim: the claim is lost.
        """
        held = select(jobs.c.id).where(is_held(claim)).exists()
        statement = update(attempts).where(_of(claim, attempt_id), held).values(prompt_number=prompt_number)

        def work(connection: Connection) -> None:
            if (connection.execute(statement)).rowcount == 0:
                raise _stale(claim)

        await self._write(work)

    async def end_attempt(
        self,
        claim: Claim,
        attempt_id: int,
        *,
        verdict: str | None,
        reason: str | None = None,
        message: str = "",
        evidence: str = "",
        device: str = "",
        server_version: str = "",
    ) -> None:
        """Note how the attempt ended; the job stays claimed. No verdict: it was given up, not judged.

        Raises:
            StaleClaim: the claim is lost.
        """
        ending = {"verdict": verdict, "reason": reason, "message": message, "evidence": evidence}

        def work(connection: Connection) -> None:
            _guarded(connection, claim, open_attempt=null(), reason_class=reason, reason=message)
            _end(connection, claim, attempt_id, ending | {"device": device, "server_version": server_version})

        await self._write(work)

    async def rendered(
        self,
        claim: Claim,
        attempt_id: int,
        files: Sequence[OutputFile],
        *,
        spool: str | None,
        seconds: float,
        device: str = "",
        server_version: str = "",
    ) -> None:
        """Note that the attempt succeeded and its files are kept in `spool`. The claim stays.

        Args:
            claim: the job's.
            attempt_id: the attempt that succeeded.
            files: all outputs; those of an earlier attempt are dropped from the ledger.
            spool: folder in which the files lie until they are synced.
            seconds: how long the server took.
            device: name of the server's GPU, as it says it.
            server_version: ComfyUI's version.

        Raises:
            StaleClaim: the claim is lost.
        """
        ending = {"verdict": "succeeded", "device": device, "server_version": server_version}
        rows = [{"job": claim.job_id, **file.model_dump()} for file in files]

        def work(connection: Connection) -> None:
            _guarded(
                connection,
                claim,
                status=Status.RENDERED,
                spool=spool,
                seconds=seconds,
                open_attempt=null(),
                reason_class=null(),
                reason="",
            )
            _end(connection, claim, attempt_id, ending)
            connection.execute(delete(outputs).where(outputs.c.job == claim.job_id))
            if rows:
                connection.execute(insert(outputs), rows)

        await self._write(work)

    async def note_upload_failure(self, claim: Claim, message: str) -> None:
        """Note that the rendered files could not be stored; the job stays rendered and claimed.

        Raises:
            StaleClaim: the claim is lost.
        """

        def work(connection: Connection) -> None:
            failures = jobs.c.upload_failures + 1
            _guarded(connection, claim, upload_failures=failures, reason_class="upload", reason=message)

        await self._write(work)

    async def succeed(self, claim: Claim) -> None:
        """The rendered files are where they belong: the job is done.

        Raises:
            StaleClaim: the claim is lost, or the job is not rendered.
        """
        await self._finish(
            claim, Status.SUCCEEDED, reason_class=null(), reason="", spool=null(), must_be=Status.RENDERED
        )

    async def bury(self, claim: Claim, *, reason_class: str | None, reason: str, evidence: str = "") -> None:
        """Make the job a dead letter: it is not tried again until a person requeues it.

        Raises:
            StaleClaim: the claim is lost.
        """
        await self._finish(claim, Status.DEAD, reason_class=reason_class, reason=reason, evidence=evidence)

    async def cancel(self, claim: Claim, reason: str) -> None:
        """Cancel a job that the caller holds, after its prompt is off the server.

        Raises:
            StaleClaim: the claim is lost.
        """
        await self._finish(claim, Status.CANCELLED, reason_class="cancelled", reason=reason)

    async def _finish(
        self, claim: Claim, status: Status, *, must_be: Status | None = None, **values: Any
    ) -> None:
        def work(connection: Connection) -> None:
            end = {"status": status, "ended": db_now(), "owner": null(), "lease_until": null()}
            guard = update(jobs).where(is_held(claim))
            if must_be is not None:
                guard = guard.where(jobs.c.status == must_be)
            statement = guard.values(**values, **end, open_attempt=null())
            if (connection.execute(statement)).rowcount:
                return
            if not _is_already(connection, claim, status):
                raise _stale(claim)

        await self._write(work)


def _beginning(claim: Claim, server_url: str) -> Any:
    return (
        update(jobs)
        .where(is_held(claim))
        .values(
            status=Status.RUNNING,
            server_url=server_url,
            spool=null(),
            attempts_made=jobs.c.attempts_made + 1,
            started=func.coalesce(jobs.c.started, db_now()),
        )
        .returning(jobs.c.attempts_made, jobs.c.open_attempt)
    )


def _guarded(connection: Connection, claim: Claim, **values: Any) -> None:
    # The update also locks the row, so that on PostgreSQL no new owner comes in between.
    statement = update(jobs).where(is_held(claim)).values(**values)
    if (connection.execute(statement)).rowcount == 0:
        raise _stale(claim)


def _end(connection: Connection, claim: Claim, attempt_id: int, values: dict[str, Any]) -> None:
    first_end = func.coalesce(attempts.c.ended, db_now())
    connection.execute(update(attempts).where(_of(claim, attempt_id)).values(ended=first_end, **values))


def _is_already(connection: Connection, claim: Claim, status: Status) -> bool:
    """Whether this very claim finished the job before: the answer to the first call was lost."""
    query = select(jobs.c.id).where(
        jobs.c.id == claim.job_id, jobs.c.token == int(claim.token), jobs.c.status == status
    )
    return connection.scalar(query) is not None


def _of(claim: Claim, attempt_id: int) -> Any:
    return (attempts.c.id == attempt_id) & (attempts.c.job == claim.job_id)


def _stale(claim: Claim) -> StaleClaim:
    return StaleClaim(f"job {claim.job_id}: the claim with token {claim.token} is lost to another owner")
