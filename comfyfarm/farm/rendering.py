"""One attempt of a job, on whichever lane takes it, its outputs collected and all of it written down."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from comfyfarm.clock import Clock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.session import Session
from comfyfarm.errors import FarmError, NoLane, ServerError, SpoolError
from comfyfarm.farm.ending import end_prompt
from comfyfarm.farm.lane import Errand
from comfyfarm.farm.recorder import Recorder, give_up
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import Server, examine_all
from comfyfarm.farm.taken import TakenJob
from comfyfarm.farm.work import Batchwork
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import AttemptRecord, OutputFile
from comfyfarm.outputs.collect import Spool, collect
from comfyfarm.pool.handout import Handout
from comfyfarm.run.attempt import Attempt, Task
from comfyfarm.run.classify import transient
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import Outcome, Reason, Verdict
from comfyfarm.run.retry import NextStep, Retry, Tried, next_step

logger = logging.getLogger(__name__)

_ABANDON_S = 5.0  # a server that is not ours any more is asked no longer than this


class Rendering:
    """Renders jobs of one batch. Knows servers, spool and ledger, but of no lane more than the hand-out."""

    def __init__(
        self,
        work: Batchwork,
        servers: Mapping[str, Server],
        handout: Handout[Errand],
        *,
        request: RenderRequest,
        ledger: Ledger,
        spool: Spool,
        clock: Clock,
    ) -> None:
        self._work, self._servers, self._handout = work, servers, handout
        self._request, self._ledger, self._spool, self._clock = request, ledger, spool, clock
        self._clients: dict[str, ComfyClient] = {}
        self._laneless: dict[str, Server] = {}

    async def render(self, job: TakenJob) -> NextStep:
        """One attempt; what follows from it.

        Raises:
            StaleClaim: another owner has the job now.
            NoLane: no server is left.
            SpoolError: this host cannot keep the outputs.
        """
        was_tried = job.record.attempts_made > 0 or job.retry is not None
        attempts = await self._ledger.attempts(job.id) if was_tried else ()
        left = _left(attempts)
        over = [one for one in attempts if one is not left and _counts(one)]
        tried = [_tried(one, Verdict(one.verdict)) for one in over if one.verdict]
        async with AsyncExitStack() as kept:
            session, executed = await self._executed(job, left, tried, kept)
            return await self._concluded(job, session, executed, tried)

    async def _concluded(
        self, job: TakenJob, session: Session, executed: Executed, tried: Sequence[Tried]
    ) -> NextStep:
        """Collect the outputs, and write down how it ended."""
        outcome = await self._collected(job, executed, session)
        if outcome.reason in {Reason.SERVER, Reason.CRASH}:
            self._work.forget_uploads(session.url)
        if job.attempt is not None and outcome.verdict is not Verdict.SUCCEEDED:
            await self._ledger.end_attempt(
                job.claim,
                job.attempt.id,
                verdict=outcome.verdict,
                reason=outcome.reason,
                message=outcome.message,
                evidence=outcome.evidence,
            )
            job.attempt_ended(may_run=executed.may_run)
        logger.info("job %s on %s: %s %s", job.id, session.client.shown_url, outcome.verdict, outcome.message)
        now = Tried(server_url=session.url, outcome=outcome, may_run=executed.may_run)
        step = next_step([*tried, now], self._request.retries)
        job.retry = step if isinstance(step, Retry) else None
        return step

    async def _executed(
        self, job: TakenJob, left: AttemptRecord | None, tried: Sequence[Tried], kept: AsyncExitStack
    ) -> tuple[Session, Executed]:
        """On a lane. What was left on a server that has none here is looked for there first."""
        if left is None:
            return await self._execute(job, None, tried)
        if self._handout.will_come(left.server_url):
            found = await self._execute(job, left, tried)
            if found[1].outcome.reason is not Reason.GIVEN_BACK:
                return found
        followed = await self._followed(job, left, kept)
        if followed is not None:
            return followed
        await self._abandon(job, left)
        return await self._execute(job, None, tried)

    async def _followed(
        self, job: TakenJob, left: AttemptRecord, kept: AsyncExitStack
    ) -> tuple[Session, Executed] | None:
        """Follow a prompt on one of the servers that were given, although its lane is gone, or never was.

        It waits for no GPU slot: it has its GPU. Nothing is sent there. None: the server has not got it.
        """
        if left.server_url not in self._request.servers:
            return None
        try:
            if left.server_url not in {*self._servers, *self._laneless}:
                (server,) = await examine_all([left.server_url])
                self._laneless[server.url] = server
                self._work.add_server(server.url, server.node_schema)
        except FarmError as exc:
            logger.warning("job %s was left on a server that is away: %s", job.id, exc)
            return None
        session = await kept.enter_async_context(Session(left.server_url, clock=self._clock))
        executed = await self._attempt(job, left, session, may_be_sent=False)
        return None if executed.outcome.reason is Reason.GIVEN_BACK else (session, executed)

    async def _abandon(self, job: TakenJob, left: AttemptRecord) -> None:
        """An attempt on a server without a lane here: end it there if that can be, then count it out."""
        why = "left on a server that has no lane here"
        await end_prompt(self._ledger, job.claim, left, why=why, clock=self._clock, deadline_s=_ABANDON_S)
        await give_up(self._ledger, job.claim, left.id, why)

    async def _execute(
        self, job: TakenJob, left: AttemptRecord | None, tried: Sequence[Tried]
    ) -> tuple[Session, Executed]:
        job.recorder, job.has_outcome = None, False

        async def attempt(session: Session) -> Executed:
            if left is not None and session.url != left.server_url:
                return Executed(outcome=transient(Reason.GIVEN_BACK, "the lane of its server is gone"))
            return await self._attempt(job, left, session)

        errand = job.errand = Errand(job_id=job.id, attempt=attempt)
        pinned, avoid = self._place(job, left, tried)
        if not self._handout.put(errand, pinned=pinned, avoid=avoid):
            raise NoLane("no server of this shard is left")
        try:
            return await errand.result
        except asyncio.CancelledError:
            self._handout.withdraw(errand)
            raise
        finally:
            job.errand = None

    def _place(
        self, job: TakenJob, left: AttemptRecord | None, tried: Sequence[Tried]
    ) -> tuple[str | None, frozenset[str]]:
        """Where the job must go, and where it should not."""
        if left is not None:
            return left.server_url, frozenset()
        if job.retry is None:  # tried by an earlier process, if at all
            return None, frozenset({tried[-1].server_url} if tried else ())
        if job.retry.prefer in self._handout.lanes:
            return job.retry.prefer, frozenset()
        return None, job.retry.avoid | ({job.retry.prefer} if job.retry.prefer else set())

    async def _attempt(
        self, job: TakenJob, left: AttemptRecord | None, session: Session, *, may_be_sent: bool = True
    ) -> Executed:
        job.is_under_way = True
        may_run = job.retry is not None and job.retry.prefer == session.url
        recorder = job.recorder = Recorder(
            self._ledger, job.claim, self._server(session.url), client_id=session.client_id, left=left
        )
        try:
            graph, expected = await self._work.graph_for(job.record, session.client)
            task = Task(
                job_id=job.id,
                graph=graph,
                expected=expected,
                may_be_there=left is not None or may_run,
                may_be_sent=may_be_sent,
                number=left.prompt_number if left is not None else None,
            )
            attempt = Attempt(session, task, recorder, deadlines=self._deadlines(job), clock=self._clock)
            return await attempt.execute()
        except ServerError as exc:
            return Executed(outcome=transient(Reason.SERVER, str(exc)))
        finally:
            recorder.ended()

    def _deadlines(self, job: TakenJob) -> Deadlines:
        """The batch's, and over them the job's own."""
        return self._request.deadlines.model_copy(update=dict(job.record.deadlines))

    async def _collected(self, job: TakenJob, executed: Executed, session: Session) -> Outcome:
        attempt = job.attempt
        if executed.entry is None or executed.outcome.verdict is not Verdict.SUCCEEDED or attempt is None:
            return executed.outcome
        limit_s = self._deadlines(job).collect_s
        try:
            async with asyncio.timeout(limit_s):
                files = await collect(
                    self._downloads(session.url),
                    executed.entry,
                    job_id=job.id,
                    spool=self._spool,
                    clock=self._clock,
                )
        except TimeoutError:
            self._spool.clear(job.id)
            return transient(Reason.DEADLINE, f"collection: not done after {limit_s:g} s")
        except FileNotFoundError as exc:
            return transient(Reason.SERVER, f"outputs: {exc.filename} was taken away meanwhile")
        except OSError as exc:
            # The attempt stays open: the prompt is done, and another host can collect it.
            where = self._spool.folder(job.id)
            raise SpoolError(f"outputs cannot be kept in {where}: {exc.strerror}; free some space") from exc
        except ServerError as exc:
            self._spool.clear(job.id)
            # A cached save node would name the missing file again.
            await self._downloads(session.url).free()
            return transient(Reason.SERVER, f"outputs: {exc}")
        server = self._server(session.url)
        job.record, job.made_by = await self._ledger.rendered(
            job.claim,
            attempt.id,
            [OutputFile(path=file.path, sha256=file.sha256, size=file.size) for file in files],
            spool=str(self._spool.folder(job.id)),
            seconds=executed.entry.seconds or 0.0,
            device=server.device.name,
            server_version=server.version,
        )
        return executed.outcome

    def _server(self, url: str) -> Server:
        return self._servers.get(url) or self._laneless[url]

    def _downloads(self, url: str) -> ComfyClient:
        """A client of our own: the lane's ends with the lane, perhaps before the download."""
        if url not in self._clients:
            self._clients[url] = ComfyClient(url)
        return self._clients[url]

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))


def _left(attempts: Sequence[AttemptRecord]) -> AttemptRecord | None:
    """The attempt to take up: one that is open, or that succeeded on its server and whose files are not here.

    Its owner had them, and is gone; the server may still have them.
    """
    last = attempts[-1] if attempts else None
    return last if last is not None and last.verdict in {None, Verdict.SUCCEEDED} else None


def _counts(attempt: AttemptRecord) -> bool:
    """Whether it is a try of the job: not one that its owner gave up, nor one before a requeue."""
    return attempt.counts and attempt.reason != Reason.GIVEN_BACK


def _tried(attempt: AttemptRecord, verdict: Verdict) -> Tried:
    return Tried(
        server_url=attempt.server_url,
        outcome=Outcome(
            verdict=verdict,
            reason=Reason(attempt.reason) if attempt.reason else None,
            message=attempt.message,
        ),
    )
