"""A stretch of a batch on one host: takes jobs from the ledger, renders them on lanes, brings outputs home.

No Prefect here. `flows.render_shard` and `comfyfarm.farm.local` drive it: one call of `lanes.work` for each
server, one of `render` and one of `sync` for each job, `take` until it gives nothing more.
"""

import asyncio
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from comfyfarm.addresses import mask
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.clock import Clock
from comfyfarm.comfy.supervision import Supervisor, Unsupervised
from comfyfarm.errors import FarmError, StaleClaim
from comfyfarm.farm.ending import INTERRUPT_S, end_prompt, sweep_spool
from comfyfarm.farm.lane import DEPTH, Errand
from comfyfarm.farm.lanes import Lanes
from comfyfarm.farm.leases import SURE_S, Leases
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.rendering import Rendering
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import Server
from comfyfarm.farm.syncing import Syncing
from comfyfarm.farm.taken import TakenJob
from comfyfarm.farm.work import Batchwork
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import is_gone
from comfyfarm.ledger.records import UNFINISHED, Claim, JobRecord, Status
from comfyfarm.outputs.collect import Spool
from comfyfarm.pool.handout import Handout
from comfyfarm.run.retry import Collect, Dead, NextStep

logger = logging.getLogger(__name__)

OnLate = Callable[[JobRecord], Awaitable[None]]

_REFILL = 2.5  # jobs open for each lane
_END_S = 15.0  # of one job, when the shard is interrupted
_ON_ITS_WAY_S = 2.0  # a submission is answered in milliseconds


class Shard:
    """Everything that one process needs to work through a batch on the servers it was given."""

    def __init__(
        self,
        work: Batchwork,
        servers: Sequence[Server],
        *,
        request: RenderRequest,
        ledger: Ledger,
        store: ObjectPlace,
        spool: Spool,
        pictures: Pictures | None,
        owner: str,
        clock: Clock,
        supervisor: Supervisor | None = None,
        on_late: OnLate | None = None,
        shard_id: str | None = None,
    ) -> None:
        """`on_late`: told of each job that came too late to be begun, and is dead for it."""
        self.id = shard_id or str(uuid.uuid4())
        """Under Prefect, the id of its flow run."""
        self._work, self._request = work, request
        self._servers = {server.url: server for server in servers}
        self._ledger, self._spool = ledger, spool
        self._owner, self._clock = owner, clock
        self._supervisor = supervisor or Unsupervised()
        self._on_late, self._telling = on_late, list[asyncio.Task[None]]()
        self._handout: Handout[Errand] = Handout(self._servers, depth=DEPTH)
        self._rendering = Rendering(
            work, self._servers, self._handout, request=request, ledger=ledger, spool=spool, clock=clock
        )
        self._jobs: dict[JobId, TakenJob] = {}
        self._leases = Leases(
            ledger,
            owner,
            [server.record() for server in servers],
            claims=lambda: [job.claim for job in self._jobs.values()],
            on_kept=self._kept,
            on_lost=self._lost,
            clock=clock,
        )
        self.lanes = Lanes(
            self._servers,
            handout=self._handout,
            drop_server=self._leases.drop_server,
            supervisor=self._supervisor,
            clock=clock,
        )
        self._syncing = Syncing(
            work,
            self._leases,
            is_ours=self._has,
            ledger=ledger,
            store=store,
            spool=spool,
            pictures=pictures,
            clock=clock,
        )
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._ledger.announce_shard(
                self._work.batch, self._request.host, self._owner, shard_id=self.id
            )
            stack.push_async_callback(self._ledger.end_shard, self.id)
            await sweep_spool(self._ledger, self._spool)
            stack.push_async_callback(self._told)
            stack.push_async_callback(self._give_parked_back)
            stack.push_async_callback(self._rendering.close)
            await stack.enter_async_context(self._leases)
            self._entered = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.aclose()

    async def _give_parked_back(self) -> None:
        await self._give_all_back([job for job in self._jobs.values() if job.is_parked])

    # --- jobs ----------------------------------------------------------------------------------

    def room(self, open_jobs: int) -> int:
        """How many jobs to take now; nought while enough are open.

        Enough is what the servers have of ours, and one more for each, so that book-keeping is done before
        a GPU is free. A few are taken at a time: it costs as much as taking one.
        """
        lanes = self.lanes.at_work
        return 3 * lanes - open_jobs if open_jobs <= _REFILL * lanes else 0

    async def take(self, most: int) -> tuple[TakenJob, ...]:
        """The next jobs of the batch, `most` at the most; none when none is free.

        Claims of processes of this host that are gone are taken over at once.
        """
        taking = asyncio.create_task(self._take(most))
        try:
            return await asyncio.shield(taking)
        finally:
            # Cancelled meanwhile, the claims are made all the same: they must be known here to be ended.
            await asyncio.wait({taking}, timeout=_ON_ITS_WAY_S)

    async def _take(self, most: int) -> tuple[TakenJob, ...]:
        await self._renew_doubtful()
        until = self._clock.monotonic() + SURE_S
        taken = await self._ledger.take(
            self._work.batch, self._owner, most, is_gone=is_gone, on_late=self._tell_of
        )
        jobs = tuple(TakenJob(record, claim, sure_until=until) for record, claim in taken)
        self._jobs |= {job.id: job for job in jobs}
        return jobs

    async def _renew_doubtful(self) -> None:
        """After a freeze our own jobs are free to be taken, by ourselves too: they would be here twice."""
        now = self._clock.monotonic()
        await self._leases.renew([job.claim for job in self._jobs.values() if now > job.sure_until])

    def _tell_of(self, late: Sequence[JobRecord]) -> None:
        for job in late:
            logger.error("job %s is dead: %s", job.id, job.reason)
        if self._on_late is not None:
            self._telling.append(asyncio.create_task(_one_by_one(self._on_late, late)))

    async def _told(self) -> None:
        await asyncio.gather(*self._telling)

    async def is_finished(self) -> bool:
        """Whether no job of the batch is left to anyone."""
        counts = await self._ledger.counts(self._work.batch)
        parked = sum(1 for job in self._jobs.values() if job.is_parked)
        return sum(counts.get(status, 0) for status in UNFINISHED) == parked

    def _kept(self, claim: Claim, sure_until: float) -> None:
        """It was renewed."""
        job = self._jobs.get(claim.job_id)
        if job is not None and job.claim == claim:
            job.sure_until = sure_until

    def _lost(self, claim: Claim) -> None:
        """Another owner has the job, and perhaps follows its very prompt: nobody here waits for it."""
        job = self._jobs.get(claim.job_id)
        if job is None or job.claim != claim:
            return
        self._forget(job)
        if job.errand is not None and not job.errand.result.done():
            job.errand.result.set_exception(StaleClaim(f"job {job.id} has another owner now"))

    @property
    def servers(self) -> Mapping[str, Server]:
        """The servers by their address: a lane belongs to each."""
        return self._servers

    @property
    def is_busy(self) -> bool:
        """Whether a prompt of ours is on a server, or outputs are on their way."""
        return any(job.is_under_way for job in self._jobs.values())

    # --- one job -------------------------------------------------------------------------------

    async def render(self, job: TakenJob) -> NextStep:
        """One attempt of a job, its outputs collected; what follows from it.

        Raises:
            StaleClaim: another owner has the job now.
            NoLane: no server is left.
            SpoolError: this host cannot keep the outputs.
        """
        if self._syncing.is_rendered(job):
            return Collect()
        if job.record.status == Status.RENDERED:
            await self._syncing.remove(job)
        try:
            return await self._rendering.render(job)
        finally:
            job.is_under_way = False

    async def sync(self, job: TakenJob) -> None:
        """Bring the outputs of a rendered job to their place; then, and only then, it is done.

        Raises:
            StoreError: the place did not take a file; the files stay here.
            StaleClaim: another owner has the job now.
        """
        job.is_under_way = True
        try:
            await self._syncing.store(job)
            self._forget(job)
            await self._syncing.tidy(job)
        finally:
            job.is_under_way = False

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
        if self._syncing.is_rendered(job):
            try:
                await self._ledger.note_upload_failure(job.claim, note)
            except StaleClaim as exc:
                logger.warning("%s", exc)
                self._forget(job)

    async def leave(self) -> None:
        """Give every job back, and its prompt to whoever goes on with it: what a GPU has done is not lost."""
        jobs = tuple(self._jobs.values())
        await asyncio.gather(
            *(job.recorder.stop(within_s=_ON_ITS_WAY_S) for job in jobs if job.recorder is not None)
        )
        await self._give_all_back(jobs)

    async def interrupt(self, *, cancelled: bool) -> None:
        """End every prompt of ours on every server, proven; then the jobs are cancelled, or given back.

        Idempotent, and bounded: it runs while the flow is being ended.

        Raises:
            FarmError: of the ledger; every prompt had its chance before.
        """
        jobs = tuple(self._jobs.values())
        ends = await asyncio.gather(
            *(self._interrupt(job, cancelled=cancelled) for job in jobs), return_exceptions=True
        )
        for failed in ends:
            if isinstance(failed, BaseException):
                raise failed
        if cancelled:
            # Whatever is still claimed by this process belongs to nobody in it.
            await self._ledger.cancel_batch(self._work.batch, "cancelled", dead_owners=[self._owner])

    async def _interrupt(self, job: TakenJob, *, cancelled: bool) -> None:
        try:
            async with asyncio.timeout(_END_S):
                if self._syncing.is_rendered(job):
                    await self.sync(job)  # what is rendered is not thrown away
                    return
                await self._end_prompt(job)
            if cancelled:
                await self._ledger.cancel(job.claim, "cancelled")
                self._forget(job)
                return
        except FarmError as exc:
            logger.warning("job %s is not ended in order: %s", job.id, exc)
        except TimeoutError:
            logger.warning("job %s is not ended in order: it took more than %g s", job.id, _END_S)
        await self._give_all_back([job])

    async def _give_all_back(self, jobs: Sequence[TakenJob]) -> None:
        """Each, whatever becomes of the others.

        Raises:
            FarmError: of the ledger, the first one.
        """
        for job in jobs:
            job.sure_until = -math.inf  # a thread may still be storing its files
            self._forget(job)
        ends = (self._ledger.give_back(job.claim) for job in jobs)
        for failed in await asyncio.gather(*ends, return_exceptions=True):
            if failed is not None:
                raise failed

    async def _end_prompt(self, job: TakenJob) -> None:
        if job.recorder is None:
            return
        await job.recorder.stop(within_s=_ON_ITS_WAY_S)
        if job.attempt is not None and not job.has_outcome:
            limit_s = min(INTERRUPT_S, self._request.deadlines.cancel_s)
            let_go = await end_prompt(
                self._ledger,
                job.claim,
                job.attempt,
                why="interrupted by us",
                clock=self._clock,
                deadline_s=limit_s,
            )
            if not let_go:
                await self._restart(job.attempt.server_url, f"it will not let go of prompt {job.id}")

    async def _restart(self, url: str, why: str) -> None:
        if not await self._supervisor.restart(url, why):
            logger.error("%s must be restarted, which nobody here can do: %s", mask(url), why)
            await self._leases.drop_server(url)

    def _has(self, job: TakenJob) -> bool:
        return self._jobs.get(job.id) is job

    def _forget(self, job: TakenJob) -> None:
        if self._has(job):
            del self._jobs[job.id]


async def _one_by_one(tell: OnLate, jobs: Sequence[JobRecord]) -> None:
    for job in jobs:
        await tell(job)
