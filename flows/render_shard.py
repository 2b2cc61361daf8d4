"""The flow `render-shard`: one stretch of a batch on one host. It takes jobs until none are left."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Cancelled

from comfyfarm.addresses import mask
from comfyfarm.clock import SystemClock
from comfyfarm.errors import AttemptFailed, NoLane, StaleClaim, StoreError
from comfyfarm.farm.drive import drive, end_lanes
from comfyfarm.farm.servers import Server, eligible, examine_all, model_slug
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.stage import load_batch, open_shard
from comfyfarm.farm.stopping import stop_of_process
from comfyfarm.farm.taken import TakenJob
from comfyfarm.ledger.records import UNFINISHED
from comfyfarm.run.retry import RetryPolicy
from comfyfarm.settings import read_settings
from flows.cancel_watch import is_cancelling, stop_when_cancelled
from flows.dead_letter import announce_late
from flows.farm_ledger import farm_ledger
from flows.free_slots import free_dead_slots
from flows.gpu_limits import set_gpu_limits
from flows.log_forwarding import forward_core_logs
from flows.named_places import output_place
from flows.render_tasks import full_jitter, lane, render, sync

logger = logging.getLogger("comfyfarm.flows.render_shard")

_INTERRUPT_S = 20.0  # Prefect kills a cancelled run after 30


@flow(name="render-shard", flow_run_name="{batch} on {host}")
async def render_shard(
    batch: str, host: str, servers: dict[str, str], out: str | None = None, ledger: str | None = None
) -> dict[str, int] | State[Any]:
    """Render what is left of a batch, by one process, on the servers that it can reach.

    Args:
        batch: Name of the batch in the ledger.
        host: Name of the host where it runs.
        servers: Base addresses of ComfyUI servers, and the host of each, as in the tag `gpu:<host>`.
        out: Name of an output-store block with the credentials; default: those of the environment.
        ledger: Name of a ledger block; default: COMFYFARM_LEDGER.

    Returns:
        How many jobs of the batch have each status.
    """
    forward_core_logs()
    async with farm_ledger(ledger) as opened:
        counts = await opened.counts(batch)
        if counts and not any(counts.get(status) for status in UNFINISHED):
            return dict(counts)
        request, prepared = await load_batch(opened, batch)
        request = request.model_copy(update={"host": host})
        able = eligible(await _examine(servers), prepared.needed)
        state_dir = read_settings().state_dir
        _, access = await output_place(out) if out else ("", None)
        async with open_shard(
            request,
            prepared,
            able,
            ledger=opened,
            state_dir=state_dir,
            access=access,
            on_late=announce_late,
            shard_id=flow_run.id,
        ) as shard:
            await set_gpu_limits(opened, host)
            await free_dead_slots(opened, host)
            was_cancelled = await _work(shard, able, request.retries)
        await set_gpu_limits(opened, host)
        counts = await opened.counts(batch)
    return Cancelled(message="its prompts are interrupted") if was_cancelled else counts


async def _examine(servers: Mapping[str, str]) -> tuple[Server, ...]:
    found = await examine_all(list(servers))
    return tuple(one.model_copy(update={"host": servers[one.url]}) for one in found)


async def _work(shard: Shard, servers: Sequence[Server], retries: RetryPolicy) -> bool:
    """Lanes and jobs side by side; whether the run was cancelled.

    Every prompt is then interrupted, proven, and its job cancelled. When only this process is to
    stop, likewise, but its jobs are given back, and the cancellation goes on.
    """
    lanes = {server.url: asyncio.create_task(_hold_lane(shard, server)) for server in servers}
    try:
        async with stop_when_cancelled():
            await drive(
                shard,
                lambda job: _run_job(shard, job, retries),
                clock=SystemClock(),
                stop=stop_of_process.get(),
            )
    except asyncio.CancelledError:
        was_cancelled = False
        with anyio.CancelScope(shield=True), anyio.move_on_after(_INTERRUPT_S):
            was_cancelled = await is_cancelling()
            await shard.interrupt(cancelled=was_cancelled)
        if not was_cancelled:
            raise
        return True
    finally:
        await end_lanes(shard, lanes)
    return False


async def _hold_lane(shard: Shard, server: Server) -> None:
    """Ask for the lane's GPU slot until it is had: task retries do not cover a failure to get it."""
    model = model_slug(server.device)
    held = lane.with_options(
        task_run_name=f"lane-{mask(server.url).partition('://')[2]}",
        tags={f"gpu:{server.host}", f"gpu:{model}"},
    )
    while True:
        try:
            await held(shard, server.url)
            return
        except Exception as exc:
            # Its module is private to Prefect, hence by name.
            if type(exc).__name__ != "ConcurrencySlotAcquisitionError":
                logger.exception("lane of %s", mask(server.url))
                await shard.lanes.lost(server.url)
                return
            logger.warning("no GPU slot yet for %s: %s", mask(server.url), exc)
            await SystemClock().sleep(2.0)


async def _run_job(shard: Shard, job: TakenJob, retries: RetryPolicy) -> None:
    options: dict[str, Any] = {"retries": retries.attempts - 1, "retry_delay_seconds": full_jitter(retries)}
    try:
        ended = await render.with_options(task_run_name=f"render-{job.id}", **options)(shard, job)
        if isinstance(ended, State):
            logger.error("job %s is dead: %s", job.id, ended.message)
            return
        await sync.with_options(task_run_name=f"sync-{job.id}", **options)(shard, job)
    except StaleClaim as exc:
        logger.warning("%s; its result here is thrown away", exc)
    except StoreError as exc:
        await shard.give_back(job, note=f"not uploaded: {exc}")
    except (NoLane, AttemptFailed) as exc:
        await shard.give_back(job, note=str(exc))
