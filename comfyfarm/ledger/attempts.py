"""What an owner writes about its job. Every write is guarded by job, token and owner.

Zero rows changed means that the claim is lost: `StaleClaim`, and nothing of the call is kept.
A call that was kept although its answer was lost may be made again without harm.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Update

from comfyfarm.errors import StaleClaim
from comfyfarm.ledger import attempt_statements as st
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.held import held_by
from comfyfarm.ledger.records import (
    AttemptRecord,
    Claim,
    JobRecord,
    OutputFile,
    Status,
    attempt_record,
    job_record,
)


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
            guard = held_by(claim) | {"on_server": server_url}
            before = connection.execute(st.BEGIN, guard).one_or_none()
            if before is None:
                raise _stale(claim)
            if before.open_attempt is not None:
                given_up = _ending(claim, before.open_attempt, {"message": "given up"})
                connection.execute(st.END_ATTEMPT, given_up)
            columns = values | {"job": claim.job_id, "number": before.attempts_made}
            row = connection.execute(st.NEW_ATTEMPT, columns).one()
            connection.execute(st.OPENED, {"of_job": claim.job_id, "attempt": row.id})
            return attempt_record(row)

        return await self._write(work)

    async def submitted(self, claim: Claim, attempt_id: int, prompt_number: int) -> None:
        """Note the `number` under which the server took the prompt.

        Raises:
            StaleClaim: the claim is lost.
        """
        values = held_by(claim) | {"of_job": claim.job_id, "attempt": attempt_id, "as_number": prompt_number}

        def work(connection: Connection) -> None:
            if connection.execute(st.SUBMITTED, values).rowcount == 0:
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
        gives_up: bool = False,
    ) -> None:
        """Note how the attempt ended; the job stays claimed. No verdict: it was given up, not judged.

        A verdict that is there stays, unless this call `gives_up` what was done.

        Raises:
            StaleClaim: the claim is lost.
        """
        ending = {"verdict": verdict, "reason": reason, "message": message, "evidence": evidence}

        def work(connection: Connection) -> None:
            _guarded(connection, claim, st.ENDED, {"class_": reason, "why": message})
            told = ending | {"device": device, "server_version": server_version}
            statement = st.GIVE_UP_ATTEMPT if gives_up else st.END_ATTEMPT
            connection.execute(statement, _ending(claim, attempt_id, told))

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
    ) -> tuple[JobRecord, AttemptRecord]:
        """Note that the attempt succeeded and its files are kept in `spool`. The claim stays.

        Args:
            claim: the job's.
            attempt_id: the attempt that succeeded.
            files: all outputs; those of an earlier attempt are dropped from the ledger.
            spool: folder in which the files lie until they are synced.
            seconds: how long the server took.
            device: name of the server's GPU, as it says it.
            server_version: ComfyUI's version.

        Returns:
            The job and the attempt as they are now.

        Raises:
            StaleClaim: the claim is lost.
        """
        ending = {"verdict": "succeeded", "device": device, "server_version": server_version}
        rows = [{"job": claim.job_id, **file.model_dump()} for file in files]

        kept = held_by(claim) | {"in_spool": spool, "took_s": seconds}

        def work(connection: Connection) -> tuple[JobRecord, AttemptRecord]:
            row = connection.execute(st.RENDERED, kept).one_or_none()
            if row is None:
                raise _stale(claim)
            ended = connection.execute(st.SUCCEED_ATTEMPT, _ending(claim, attempt_id, ending)).one()
            connection.execute(st.DROP_FILES, {"of_job": claim.job_id})
            if rows:
                connection.execute(st.NEW_FILES, rows)
            job = job_record(row, tuple(sorted(files, key=lambda file: file.path)))
            return job, attempt_record(ended)

        return await self._write(work)

    async def note_upload_failure(self, claim: Claim, message: str) -> None:
        """Note that the rendered files could not be stored; the job stays rendered and claimed.

        Raises:
            StaleClaim: the claim is lost.
        """

        def work(connection: Connection) -> None:
            _guarded(connection, claim, st.UPLOAD_FAILED, {"why": message})

        await self._write(work)

    async def succeed(self, claim: Claim) -> None:
        """The rendered files are where they belong: the job is done.

        Raises:
            StaleClaim: the claim is lost, or the job is not rendered.
        """
        await self._finish(claim, st.SUCCEED, Status.SUCCEEDED, {})

    async def bury(self, claim: Claim, *, reason_class: str | None, reason: str, evidence: str = "") -> None:
        """Make the job a dead letter: it is not tried again until a person requeues it.

        Raises:
            StaleClaim: the claim is lost.
        """
        values = {"class_": reason_class, "why": reason, "kept_evidence": evidence}
        await self._finish(claim, st.BURY, Status.DEAD, values)

    async def cancel(self, claim: Claim, reason: str) -> None:
        """Cancel a job that the caller holds, after its prompt is off the server.

        Raises:
            StaleClaim: the claim is lost.
        """
        await self._finish(claim, st.CANCEL, Status.CANCELLED, {"why": reason})

    async def _finish(self, claim: Claim, statement: Update, status: Status, values: dict[str, Any]) -> None:
        def work(connection: Connection) -> None:
            if connection.execute(statement, held_by(claim) | values).rowcount:
                return
            if not _is_already(connection, claim, status):
                raise _stale(claim)

        await self._write(work)


def _guarded(connection: Connection, claim: Claim, statement: Update, values: dict[str, Any]) -> None:
    # The update also locks the row, so that on PostgreSQL no new owner comes in between.
    if connection.execute(statement, held_by(claim) | values).rowcount == 0:
        raise _stale(claim)


def _ending(claim: Claim, attempt_id: int, values: dict[str, Any]) -> dict[str, Any]:
    ending = {f"end_{name}": value for name, value in (st.END | values).items()}
    return ending | {"attempt": attempt_id, "of_job": claim.job_id}


def _is_already(connection: Connection, claim: Claim, status: Status) -> bool:
    """Whether this very claim finished the job before: the answer to the first call was lost."""
    sought = {"of_job": claim.job_id, "with_token": int(claim.token), "already": status.value}
    return connection.scalar(st.IS_ALREADY, sought) is not None


def _stale(claim: Claim) -> StaleClaim:
    return StaleClaim(f"job {claim.job_id}: the claim with token {claim.token} is lost to another owner")
