"""A stretch of a batch on one host: takes jobs from the ledger, renders them on lanes, brings outputs home.

No Prefect here. `flows.render_shard` and `comfyfarm.farm.local` drive it: one call of `lane` for each
server, one of `render` and one of `sync` for each job, `take` until it gives nothing more.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from comfyfarm.clock import Clock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.session import Session
from comfyfarm.errors import FarmError, NoLane, ServerError, StaleClaim
from comfyfarm.farm.lane import Errand, Lane
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.recorder import Recorder, give_up
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import Server
from comfyfarm.farm.work import Batchwork
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import is_gone
from comfyfarm.ledger.records import AttemptRecord, Claim, JobRecord, OutputFile
from comfyfarm.outputs.collect import Spool, collect
from comfyfarm.outputs.names import SpooledFile
from comfyfarm.outputs.store import OutputStore
from comfyfarm.outputs.sync import sync_job
from comfyfarm.pool.handout import Handout
from comfyfarm.run.attempt import Attempt, Executed, Task
from comfyfarm.run.cancel import cancel_prompt
from comfyfarm.run.classify import transient
from comfyfarm.run.outcome import Outcome, Reason, Verdict
from comfyfarm.run.retry import Collect, Dead, NextStep, Tried, next_step

logger = logging.getLogger(__name__)

RENEW_S = 20.0  # of a lease of 60
LEASE_S = 60.0
_ON_ITS_WAY_S = 2.0  # a submission is answered in milliseconds
_INTERRUPT_S = 10.0  # a run that is being cancelled has 30 in all


class TakenJob:
    """A job that is ours as long as its claim holds."""

    def __init__(self, record: JobRecord, claim: Claim) -> None:
        self.record, self.claim = record, claim
        self.errand: Errand | None = None
        self.recorder: Recorder | None = None
        self.session: Session | None = None
        self.is_parked = False
        """To be given back when the shard ends: at once, it would be taken again at once."""

    @property
    def id(self) -> JobId:
        """The job's id."""
        return self.record.id

    @property
    def attempt(self) -> AttemptRecord | None:
        """The attempt as far as it is written down."""
        return self.recorder.attempt if self.recorder is not None else None


class Shard:
    """Everything that one process needs to work through a batch on the servers it was given."""

    def __init__(
        self,
        work: Batchwork,
        servers: Sequence[Server],
        *,
        request: RenderRequest,
        ledger: Ledger,
        store: OutputStore,
        spool: Spool,
        pictures: Pictures,
        owner: str,
        clock: Clock,
        shard_id: str | None = None,
    ) -> None:
        self.id = shard_id or str(uuid.uuid4())
        """Under Prefect, the id of its flow run."""
        self._work, self._request = work, request
        self._servers = {server.url: server for server in servers}
        self._ledger, self._store, self._spool, self._pictures = ledger, store, spool, pictures
        self._owner, self._clock = owner, clock
        self._handout: Handout[Errand] = Handout(self._servers)
        self._jobs: dict[JobId, TakenJob] = {}
        self._renewer: asyncio.Task[None] | None = None
        self._lanes_left = set(self._servers)
        self._lanes_begun: set[str] = set()
        self._first_lane = asyncio.Event()

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers by their address: a lane belongs to each."""
        return self._servers

    @property
    def has_lanes(self) -> bool:
        """Whether any server is left that could run something."""
        return bool(self._lanes_left)

    async def lane_began(self, timeout_s: float) -> bool:
        """Whether any lane has got its GPU slot, waited for so long.

        Before that no job should be taken: another shard of the same batch could have run it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._first_lane.wait()
        return self._first_lane.is_set()

    def has_begun(self, url: str) -> bool:
        """Whether the lane of that server ever got its GPU slot."""
        return url in self._lanes_begun

    @property
    def window(self) -> int:
        """Jobs to keep open at a time: enough that book-keeping is done before a GPU is free."""
        return 3 * len(self._servers)

    async def __aenter__(self) -> Self:
        records = [server.record(self._request.host) for server in self._servers.values()]
        await self._ledger.register_servers(records, self._owner, LEASE_S)
        await self._ledger.announce_shard(self._work.batch, self._request.host, self._owner, shard_id=self.id)
        self._renewer = asyncio.create_task(self._renew(), name="lease renewer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.gather(self._renewer, return_exceptions=True)
        for job in self._jobs.values():
            if job.is_parked:
                await self._ledger.give_back(job.claim)
        await self._ledger.remove_servers(self._owner)
        await self._ledger.end_shard(self.id)

    async def take(self) -> TakenJob | None:
        """The next job of the batch; None when none is free.

        Claims of processes of this host that are gone are taken over at once.
        """
        gone = [owner for owner in await self._ledger.owners(self._work.batch) if is_gone(owner)]
        for record, claim in await self._ledger.take(self._work.batch, self._owner, 1, dead_owners=gone):
            job = self._jobs[record.id] = TakenJob(record, claim)
            return job
        return None

    async def is_finished(self) -> bool:
        """Whether no job of the batch is left to anyone."""
        counts = await self._ledger.counts(self._work.batch)
        parked = sum(1 for job in self._jobs.values() if job.is_parked)
        return sum(counts.get(status, 0) for status in ("pending", "running", "rendered")) == parked

    # --- lanes ---------------------------------------------------------------------------------

    async def lane(self, url: str) -> None:
        """Work on one server until `close`, or until the server is of no use any more."""
        self._lanes_begun.add(url)
        self._first_lane.set()
        try:
            async with Session(url, clock=self._clock) as session:
                await Lane(session, self._handout, clock=self._clock).work()
        finally:
            await self.lane_lost(url)

    async def lane_lost(self, url: str) -> None:
        """The lane of that server is over, or could never begin; without any the shard is, too."""
        self._lanes_left.discard(url)
        await self._handout.leave(url)
        if not self._lanes_left:
            await self.close()

    async def close(self) -> None:
        """Let the lanes end. Jobs that still wait for one are nobody's: whoever waits is told."""
        for errand in await self._handout.close():
            if not errand.result.done():
                errand.result.set_exception(NoLane("no server of this shard is left"))

    # --- one attempt ---------------------------------------------------------------------------

    async def render(self, job: TakenJob) -> NextStep:
        """One attempt of a job, its outputs collected; what follows from it.

        Raises:
            StaleClaim: another owner has the job now.
            NoLane: no server is left; the job was given back.
        """
        if job.record.status == "rendered" and self._spooled(job.record):
            return Collect()
        attempts = await self._ledger.attempts(job.id)
        tried = [_tried(one, Verdict(one.verdict)) for one in attempts if one.verdict and _counts(one)]
        left = attempts[-1] if attempts and attempts[-1].verdict is None else None
        if left is not None and left.server_url not in self._servers:
            await self._abandon(job, left)
            left = None
        executed, attempt, session = await self._execute(job, left, tried)
        outcome = await self._collected(job, executed, attempt, session)
        if outcome.reason in {Reason.SERVER, Reason.CRASH}:
            self._work.forget_uploads(session.url)
        if attempt is None:  # refused before it was written down: nothing was sent
            return next_step([*tried, Tried(server_url=session.url, outcome=outcome)], self._request.retries)
        if outcome.verdict is not Verdict.SUCCEEDED:
            await self._ledger.end_attempt(
                job.claim,
                attempt.id,
                verdict=outcome.verdict,
                reason=outcome.reason,
                message=outcome.message,
                evidence=outcome.evidence,
            )
        step = next_step([*tried, Tried(server_url=session.url, outcome=outcome)], self._request.retries)
        logger.info("job %s on %s: %s %s", job.id, session.client.shown_url, outcome.verdict, outcome.message)
        return step

    async def _execute(
        self, job: TakenJob, left: AttemptRecord | None, tried: Sequence[Tried]
    ) -> tuple[Executed, AttemptRecord | None, Session]:
        job.recorder = None

        async def attempt(session: Session) -> Executed:
            job.session = session
            server = self._servers[session.url]
            # Only the server that had it can know it: elsewhere there is nothing to look for.
            known = left if left is not None and left.server_url == session.url else None
            recorder = job.recorder = Recorder(
                self._ledger, job.claim, server, client_id=session.client_id, left=left
            )
            try:
                graph, expected = await self._work.graph_for(job.record, session.client)
                task = Task(
                    job_id=job.id,
                    graph=graph,
                    expected=expected,
                    may_be_there=known is not None,
                    number=known.prompt_number if known is not None else None,
                )
                return await Attempt(
                    session, task, recorder, deadlines=self._request.deadlines, clock=self._clock
                ).execute()
            except ServerError as exc:
                return Executed(outcome=transient(Reason.SERVER, str(exc)))
            finally:
                recorder.ended()

        errand = job.errand = Errand(job_id=job.id, attempt=attempt)
        avoid = frozenset({tried[-1].server_url}) if tried else frozenset()
        await self._handout.put(errand, pinned=left.server_url if left else None, avoid=avoid)
        try:
            session, executed = await errand.result
        except asyncio.CancelledError:
            await self._handout.withdraw(errand)
            raise
        finally:
            job.errand = None
        return executed, job.attempt, session

    async def _collected(
        self, job: TakenJob, executed: Executed, attempt: AttemptRecord | None, session: Session
    ) -> Outcome:
        if executed.entry is None or executed.outcome.verdict is not Verdict.SUCCEEDED or attempt is None:
            return executed.outcome
        try:
            async with asyncio.timeout(self._request.deadlines.collect_s), ComfyClient(session.url) as client:
                files = await collect(
                    client, executed.entry, job_id=job.id, spool=self._spool, clock=self._clock
                )
        except TimeoutError:
            return transient(
                Reason.DEADLINE, f"collection: not done after {self._request.deadlines.collect_s:g} s"
            )
        except OSError as exc:
            return transient(Reason.SERVER, f"outputs cannot be kept on this host: {exc.strerror}")
        except ServerError as exc:
            # A cached save node would name the missing file again.
            await _free(session.client)
            return transient(Reason.SERVER, f"outputs: {exc}")
        server = self._servers[session.url]
        await self._ledger.rendered(
            job.claim,
            attempt.id,
            [OutputFile(path=file.path, sha256=file.sha256, size=file.size) for file in files],
            spool=str(self._spool.folder(job.id)),
            seconds=executed.entry.seconds or 0.0,
            device=server.device.name,
            server_version=server.version,
        )
        job.record = await self._ledger.job(job.id)
        return executed.outcome

    async def _abandon(self, job: TakenJob, left: AttemptRecord) -> None:
        """An attempt on a server that this shard has not: end it there, then count it as given back."""
        async with ComfyClient(left.server_url) as client:
            await cancel_prompt(client, job.id, clock=self._clock, deadline_s=5.0)
        await give_up(self._ledger, job.claim, left.id, "left on a server that is not among those given now")

    # --- outputs -------------------------------------------------------------------------------

    async def sync(self, job: TakenJob) -> None:
        """Bring the outputs of a rendered job to their place; then, and only then, it is done.

        Raises:
            StoreError: the place did not take a file; the files stay here.
            StaleClaim: another owner has the job now.
        """
        files = self._files(job.record)
        attempts = await self._ledger.attempts(job.id)
        provenance = self._work.provenance(job.record, attempts)
        await sync_job(self._store, job.id, files, provenance)
        await self._ledger.succeed(job.claim)
        self._forget(job)
        await asyncio.to_thread(self._pictures.keep, job.record, files)
        self._spool.clear(job.id)

    def _files(self, record: JobRecord) -> tuple[SpooledFile, ...]:
        folder = self._spool.folder(record.id)
        return tuple(
            SpooledFile(path=one.path, local=folder / one.path, sha256=one.sha256, size=one.size)
            for one in record.files
        )

    def _spooled(self, record: JobRecord) -> bool:
        files = self._files(record)
        return all(one.local.is_file() and one.local.stat().st_size == one.size for one in files)

    # --- ends ----------------------------------------------------------------------------------

    async def bury(self, job: TakenJob, dead: Dead) -> None:
        """Write the dead letter: reason and evidence, for a person to act on."""
        outcome = dead.outcome
        await self._ledger.bury(
            job.claim,
            reason_class=outcome.reason or "",
            reason=f"{outcome.reason}: {outcome.message}",
            evidence=outcome.evidence,
        )
        self._forget(job)

    async def give_back(self, job: TakenJob, *, note: str = "") -> None:
        """No outcome: the next claimant goes on where this one stopped.

        It stays ours until this shard ends: given back at once, we would take it again at once.
        """
        job.is_parked = True
        if job.record.status == "rendered":
            await self._ledger.note_upload_failure(job.claim, note)

    async def interrupt(self, *, cancelled: bool) -> None:
        """End every prompt of ours on every server, proven; then the jobs are cancelled, or given back.

        Idempotent, and bounded by the deadline of a cancel: it runs while the flow is being ended.
        """
        jobs = tuple(self._jobs.values())
        await asyncio.gather(*(self._interrupt(job, cancelled=cancelled) for job in jobs))
        if cancelled:
            await self._ledger.cancel_batch(self._work.batch, "cancelled")

    async def _interrupt(self, job: TakenJob, *, cancelled: bool) -> None:
        try:
            if job.record.status == "rendered":
                await self.sync(job)  # what is rendered is not thrown away
                return
            await self._end_prompt(job)
            if cancelled:
                await self._ledger.cancel(job.claim, "cancelled")
            else:
                await self._ledger.give_back(job.claim)
        except FarmError as exc:
            logger.warning("job %s: %s", job.id, exc)
            await self._ledger.give_back(job.claim)
        self._forget(job)

    async def _end_prompt(self, job: TakenJob) -> None:
        if job.session is None or job.recorder is None:
            return
        await job.recorder.stop(within_s=_ON_ITS_WAY_S)
        limit_s = min(_INTERRUPT_S, self._request.deadlines.cancel_s)
        async with ComfyClient(job.session.url) as client:
            let_go = await cancel_prompt(client, job.id, clock=self._clock, deadline_s=limit_s)
        # One whose number is not known may still arrive there: it stays open, so that the next owner looks.
        if let_go and job.attempt is not None and job.attempt.prompt_number is not None:
            await give_up(self._ledger, job.claim, job.attempt.id, "interrupted by us")

    def _forget(self, job: TakenJob) -> None:
        self._jobs.pop(job.id, None)

    # --- leases --------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Renew every claim in one statement; a lost one stops its attempt, whose result is thrown away."""
        while True:
            await self._clock.sleep(RENEW_S)
            try:
                await self._ledger.renew_servers(self._owner)
                lost = await self._ledger.renew([job.claim for job in self._jobs.values()])
            except FarmError as exc:
                logger.warning("leases could not be renewed: %s", exc)
                continue
            for job_id in lost:
                job = self._jobs.pop(job_id, None)
                if job is not None and job.errand is not None and not job.errand.result.done():
                    job.errand.result.set_exception(StaleClaim(f"job {job_id} has another owner now"))


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


async def _free(client: ComfyClient) -> None:
    try:
        await client.free()
    except ServerError as exc:
        logger.debug("/free: %s", exc)
