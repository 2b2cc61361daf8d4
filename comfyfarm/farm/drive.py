"""Works through a batch: takes jobs a few ahead, until none is left to anyone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from comfyfarm.clock import Clock
from comfyfarm.errors import FarmError
from comfyfarm.farm.shard import Shard, TakenJob

logger = logging.getLogger(__name__)

_LOOK_S = 1.0  # how often to look for jobs that other processes give back


async def drive(shard: Shard, run_job: Callable[[TakenJob], Awaitable[None]], *, clock: Clock) -> None:
    """Run every job of the batch that can be had, `shard.window` of them open at a time.

    Ends when the batch has no unfinished job, also none of another process, or when the shard
    has no server left. An exception of `run_job` ends it, and is raised.
    """
    try:
        await _drive(shard, run_job, clock)
    except ExceptionGroup as failed:
        # Whoever calls acts on the error itself; the others were cancelled for it.
        raise failed.exceptions[0] from failed


async def _drive(shard: Shard, run_job: Callable[[TakenJob], Awaitable[None]], clock: Clock) -> None:
    async with asyncio.TaskGroup() as group:
        open_jobs: set[asyncio.Task[None]] = set()
        while shard.has_lanes:
            if not await shard.lane_began(_LOOK_S):
                if await shard.is_finished():
                    return
                continue
            job = await shard.take() if len(open_jobs) < shard.window else None
            if job is not None:
                open_jobs.add(group.create_task(_run(shard, run_job, job), name=f"job {job.id}"))
            elif open_jobs:
                _, open_jobs = await asyncio.wait(
                    open_jobs, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
                )
            elif await shard.is_finished():
                return
            else:
                await clock.sleep(_LOOK_S)


async def _run(shard: Shard, run_job: Callable[[TakenJob], Awaitable[None]], job: TakenJob) -> None:
    """One job's own trouble must not end the others; an error that says what to do is for our caller."""
    try:
        await run_job(job)
    except FarmError:
        raise
    except Exception as exc:
        logger.exception("job %s is given back", job.id)
        await shard.give_back(job, note=str(exc))
