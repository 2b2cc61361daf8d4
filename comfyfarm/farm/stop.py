"""Ends what a batch left running on servers, from the ledger alone: its own process is gone."""

import asyncio
import logging

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.farm.recorder import give_up
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import is_gone, this_owner
from comfyfarm.run.cancel import cancel_prompt

logger = logging.getLogger(__name__)

_DEADLINE_S = 10.0


async def interrupt_left(ledger: Ledger, batch: str) -> int:
    """Interrupt the prompts of a batch whose owners are gone, and cancel its jobs; how many they were.

    Safe to repeat. Jobs of living processes are theirs to end.
    """
    owner = this_owner()
    gone = [one for one in await ledger.owners(batch) if is_gone(one)]
    ended = 0
    for job, claim in await ledger.take(batch, owner, 10_000, dead_owners=gone):
        urls = {one.server_url for one in await ledger.attempts(job.id) if one.verdict is None}
        await asyncio.gather(*(_interrupt(url, job.id) for url in urls))
        for one in await ledger.attempts(job.id):
            if one.verdict is None:
                await give_up(ledger, claim, one.id, "interrupted by us")
        await ledger.cancel(claim, "cancelled")
        ended += 1
    logger.info("batch %s: %d jobs cancelled", batch, ended)
    return ended


async def _interrupt(url: str, job_id: JobId) -> None:
    async with ComfyClient(url, timeout_s=3.0) as client:
        await cancel_prompt(client, job_id, clock=SystemClock(), deadline_s=_DEADLINE_S)
