"""Renders a batch without Prefect: the same stages, the same decisions, a plain loop."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import NoLane, StaleClaim, StoreError
from comfyfarm.farm.drive import drive, end_lanes
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import eligible, examine_all, suited
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import (
    BytesBar,
    bring_models,
    load_batch,
    models_held,
    open_shard,
    plan_request,
    record_batch,
    with_what_waits,
)
from comfyfarm.farm.stopping import stop_of_process
from comfyfarm.farm.supplies import keeper_from, supply_from
from comfyfarm.farm.taken import TakenJob
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.run.retry import Dead, Retry, RetryPolicy, delay_cap_s, jittered_s
from comfyfarm.settings import FarmSettings

logger = logging.getLogger(__name__)


def no_bar(_total_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
    """Shows nothing."""
    return nullcontext(lambda _count: None)


async def render_local(shard: Shard, *, retries: RetryPolicy, clock: Clock) -> None:
    """Work through the shard's batch, every lane at once. Cancelling it interrupts its prompts."""
    lanes = {url: asyncio.create_task(shard.lanes.work(url)) for url in shard.servers}
    try:
        await drive(
            shard,
            lambda job: _run_job(shard, job, retries=retries, clock=clock),
            clock=clock,
            stop=stop_of_process.get(),
        )
    except asyncio.CancelledError:
        await shard.interrupt(cancelled=False)
        raise
    finally:
        await end_lanes(shard, lanes)


async def render_here(
    request: RenderRequest, ledger: Ledger, *, settings: FarmSettings, bytes_bar: BytesBar = no_bar
) -> None:
    """All stages in one process: preflight, hydrate, dispatch, sync.

    Raises:
        InputError: preflight found what makes the batch impossible, all of it at once.
        ServerError: no server answers.
        UsageError: what answers is no ComfyUI.
        JobConflict: the batch's outputs go elsewhere already.
        TransferError: a model file could not be had from any source.
    """
    sources = read_sources(request)
    servers = await examine_all(request.servers)
    prepared = await with_what_waits(ledger, plan_request(request, sources, servers))
    servers = suited(servers, prepared.unfit)
    keeper = keeper_from(settings, request.cache_dir)
    async with models_held(request, prepared, keeper):
        if request.models_dir is not None:
            supply = supply_from(settings, mirror=request.mirror)
            await bring_models(request, prepared.models, bytes_bar, supply=supply, keeper=keeper)
            servers = await examine_all([server.url for server in servers])
        able = eligible(servers, prepared.needed)
        await record_batch(ledger, request, prepared)
        _, whole = await load_batch(ledger, prepared.batch)
        async with open_shard(
            request, whole, able, ledger=ledger, state_dir=settings.state_dir, keeps_pictures=False
        ) as shard:
            await render_local(shard, retries=request.retries, clock=SystemClock())


async def _run_job(shard: Shard, job: TakenJob, *, retries: RetryPolicy, clock: Clock) -> None:
    try:
        step = await shard.render(job)
        while isinstance(step, Retry):
            delay_s = jittered_s(step.cap_s, random.random(), least_s=step.least_s)
            logger.warning("job %s is tried again in %.1f s: %s", job.id, delay_s, step.reason)
            await clock.sleep(delay_s)
            step = await shard.render(job)
        if isinstance(step, Dead):
            await shard.bury(job, step)
        else:
            await _sync(shard, job, retries=retries, clock=clock)
    except NoLane as exc:
        await shard.give_back(job, note=str(exc))
    except StaleClaim as exc:
        logger.warning("%s; its result here is thrown away", exc)


async def _sync(shard: Shard, job: TakenJob, *, retries: RetryPolicy, clock: Clock) -> None:
    for tries in range(retries.attempts):
        try:
            await shard.sync(job)
            return
        except StoreError as exc:
            logger.warning("job %s is not uploaded: %s", job.id, exc)
            if tries + 1 == retries.attempts:
                await shard.give_back(job, note=f"not uploaded: {exc}")
                return
        await clock.sleep(jittered_s(delay_cap_s(tries, retries), random.random()))
