"""Works through a batch: takes jobs a few ahead, until none is left to anyone, or it is to stop."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from comfyfarm.addresses import mask
from comfyfarm.clock import Clock
from comfyfarm.errors import FarmError, TryLater
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.stopping import Stop
from comfyfarm.farm.taken import TakenJob

logger = logging.getLogger(__name__)

RunJob = Callable[[TakenJob], Awaitable[None]]

_LOOK_S = 1.0  # how often to look for jobs that other processes give back
_STOPPING_S = 0.1
_LANES_END_S = 3.0


async def drive(shard: Shard, run_job: RunJob, *, clock: Clock, stop: Stop | None = None) -> bool:
    """Run every job of the batch that can be had, a few more of them open than the servers have.

    Ends when the batch has no unfinished job, also none of another process, or when the shard
    has no server left. An error of `run_job` that its caller must act on (a full disk, a ledger
    that is gone) ends it: what is open is given back, and the error is raised. Prompts are interrupted only
    where nobody can go on with them before a person has mended something.

    Returns:
        False when `stop` ended it: what ran had its grace time, the rest is interrupted and given back.
    """
    stop = stop or Stop(clock=clock)
    stop.is_watched = True
    try:
        await _drive(shard, run_job, clock, stop)
    except ExceptionGroup as failed:
        # Whoever calls acts on the error itself; the others were cancelled for it.
        goes_on = any(isinstance(error, TryLater) for error in failed.exceptions)
        with contextlib.suppress(FarmError):
            await (shard.leave() if goes_on else shard.interrupt(cancelled=False))
        raise failed.exceptions[0] from failed
    finally:
        stop.is_watched = False
    if stop.is_asked:
        await shard.interrupt(cancelled=False)
    return not stop.is_asked


async def end_lanes(
    shard: Shard, lanes: Mapping[str, "asyncio.Task[None]"], *, within_s: float = _LANES_END_S
) -> None:
    """Have the lanes end, by their servers' addresses. One whose server will not let go holds nobody."""
    shard.lanes.close()
    for url, lane in lanes.items():
        if not shard.lanes.has_begun(url):  # it waits for its GPU slot: until another shard ends
            lane.cancel()
    _, left = await asyncio.wait(lanes.values(), timeout=within_s)
    for lane in left:
        lane.cancel()
    ends = await asyncio.gather(*lanes.values(), return_exceptions=True)
    for url, ended in zip(lanes, ends, strict=True):
        if isinstance(ended, Exception):
            logger.error("the lane of %s broke", mask(url), exc_info=ended)


async def _drive(shard: Shard, run_job: RunJob, clock: Clock, stop: Stop) -> None:
    async with asyncio.TaskGroup() as group:
        open_jobs: set[asyncio.Task[None]] = set()
        while shard.lanes.are_left and not stop.is_asked:
            if not await shard.lanes.began(_LOOK_S):
                if await shard.is_finished():
                    return
                continue
            room = shard.room(len(open_jobs))
            taken = await shard.take(room) if room else ()
            open_jobs |= {group.create_task(_run(shard, run_job, job), name=f"job {job.id}") for job in taken}
            if taken:
                continue
            if open_jobs:
                open_jobs = await _some_ended(open_jobs, stop)
            elif await shard.is_finished():
                return
            else:
                await clock.sleep(_LOOK_S)
        if stop.is_asked:
            await _let_end(shard, open_jobs, stop)


async def _some_ended(open_jobs: set["asyncio.Task[None]"], stop: Stop) -> set["asyncio.Task[None]"]:
    """Those that are still open once one has ended, a stop is asked for, or a second has passed."""
    asked = asyncio.create_task(stop.asked())
    try:
        await asyncio.wait({*open_jobs, asked}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    return {job for job in open_jobs if not job.done()}


async def _let_end(shard: Shard, open_jobs: set["asyncio.Task[None]"], stop: Stop) -> None:
    """Let prompts that are on servers end, and their outputs be synced, while there is grace."""
    logger.warning("stopping: %d jobs are open, nothing new is begun", len(open_jobs))
    shard.lanes.close()
    while open_jobs and shard.is_busy and stop.left_s > 0:
        _, open_jobs = await asyncio.wait(open_jobs, timeout=_STOPPING_S)
    for job in open_jobs:
        job.cancel()


async def _run(shard: Shard, run_job: RunJob, job: TakenJob) -> None:
    """One job's own trouble must not end the others; an error that says what to do is for our caller."""
    try:
        await run_job(job)
    except FarmError:
        raise
    except Exception as exc:
        logger.exception("job %s is given back", job.id)
        await shard.give_back(job, note=str(exc))
