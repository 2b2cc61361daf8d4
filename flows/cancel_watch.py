"""Notices a cancel, however it was asked for: a worker's signal, or a run that nobody else watches."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext

from comfyfarm.clock import SystemClock

logger = logging.getLogger("comfyfarm.flows.cancel_watch")

_LOOK_S = 2.0
_STOPPING = {StateType.CANCELLING, StateType.CANCELLED}


async def is_cancelling() -> bool:
    """Whether this flow run, or the one that called it, is being cancelled; False when nobody can say."""
    try:
        async with get_client() as client:
            for run_id in await _runs(client):
                run = await client.read_flow_run(run_id)
                if run.state is not None and run.state.type in _STOPPING:
                    return True
    except Exception as exc:  # noqa: BLE001 - an API that does not answer has not asked for a cancel
        logger.debug("the Prefect API could not be asked: %s", exc)
    return False


async def _runs(client: PrefectClient) -> list[UUID]:
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return []
    found = [context.flow_run.id]
    if context.flow_run.parent_task_run_id is not None:
        caller = await client.read_task_run(context.flow_run.parent_task_run_id)
        found += [caller.flow_run_id] if caller.flow_run_id is not None else []
    return found


@asynccontextmanager
async def stop_when_cancelled() -> AsyncIterator[None]:
    """Cancel the task that is inside as soon as the flow run is being cancelled.

    A worker sends a signal too; a flow that was called from Python has nobody but this.
    """
    inside = asyncio.current_task()

    async def watch() -> None:
        while not await is_cancelling():
            await SystemClock().sleep(_LOOK_S)
        logger.warning("the flow run is being cancelled: its prompts are interrupted")
        if inside is not None:
            inside.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
