"""GPU slots that a killed run still holds, given back at once: the ledger knows that it is gone."""

import logging
from uuid import UUID

from prefect import get_client, runtime
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed

from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import is_gone

logger = logging.getLogger("comfyfarm.flows.free_slots")

_PAGE = 200  # limits in one answer: the most that Prefect gives


async def free_dead_slots(ledger: Ledger, host: str) -> int:
    """Release the GPU slots of shards that ran on this host and whose processes are gone; how many.

    Prefect does it when their leases end, up to 75 s after a kill. Their runs are shown as crashed.
    """
    freed = 0
    async with ledger.lock("gpu-limits"), get_client() as client:
        for shard in await ledger.open_shards(host):
            if is_gone(shard.owner):
                freed += await _free(client, UUID(shard.id))
                await _show_crash(client, UUID(shard.id))
                await ledger.end_shard(shard.id)
    if freed:
        logger.info("%d GPU slots of dead runs on %s are free again", freed, host)
    return freed


async def _free(client: PrefectClient, flow_run_id: UUID) -> int:
    """A lane holds `gpu:<host>` and `gpu:<model>` in one lease: ended under one name, it ends for both.

    Its servers may be on several hosts, and those of the next run on others.
    """
    freed = 0
    for holder, tag in (await _holders(client)).items():
        try:
            lane = await client.read_task_run(holder)
        except ObjectNotFound:
            continue
        if lane.flow_run_id == flow_run_id:
            await client.decrement_v1_concurrency_slots([tag], holder, occupancy_seconds=0)
            freed += 1
    return freed


async def _holders(client: PrefectClient) -> dict[UUID, str]:
    """Task runs that hold a GPU slot, and one tag under which they do."""
    found: dict[UUID, str] = {}
    offset = 0
    while limits := await client.read_concurrency_limits(limit=_PAGE, offset=offset):
        offset += len(limits)
        gpus = [limit for limit in limits if limit.tag.startswith("gpu:")]
        found |= {holder: limit.tag for limit in gpus for holder in limit.active_slots}
    return found


async def _show_crash(client: PrefectClient, flow_run_id: UUID) -> None:
    """The run, and the one that called it, will never say anything again.

    Not those that we are ourselves: a run that was started again has the id of its dead life.
    """
    ours = {runtime.flow_run.id, runtime.flow_run.parent_flow_run_id, runtime.flow_run.root_flow_run_id}
    found: UUID | None = flow_run_id
    while found is not None and str(found) not in ours:
        try:
            run = await client.read_flow_run(found)
            if run.state is not None and run.state.type is StateType.RUNNING:
                await client.set_flow_run_state(found, Crashed(message="its process is gone"), force=True)
            caller = run.parent_task_run_id
            found = None if caller is None else (await client.read_task_run(caller)).flow_run_id
        except ObjectNotFound:
            return
