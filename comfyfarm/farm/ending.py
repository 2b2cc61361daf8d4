"""Ends prompts that nobody waits for any more: proven, and then written down."""

import asyncio
import contextlib
import logging

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import Phase
from comfyfarm.errors import ServerError, UsageError
from comfyfarm.farm.recorder import give_up
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import is_gone, this_owner
from comfyfarm.ledger.records import UNFINISHED, AttemptRecord, Claim, JobRecord, Status
from comfyfarm.outputs.collect import Spool
from comfyfarm.run.cancel import cancel_prompt

logger = logging.getLogger(__name__)

INTERRUPT_S = 10.0  # a run that is being cancelled has 30 in all
_ANSWER_S = 3.0
_AT_ONCE = 50


async def end_prompt(
    ledger: Ledger,
    claim: Claim,
    attempt: AttemptRecord,
    *,
    why: str,
    clock: Clock,
    deadline_s: float,
    is_wanted: bool = True,
) -> bool:
    """Have its server let go of an attempt's prompt; whether it did.

    Only then is the attempt given up. One whose number is not known may still arrive there, one
    that was not let go of may still run, and one that is done can be collected: they stay open, so
    that the next owner looks, unless the job `is_wanted` no more.
    """
    async with ComfyClient(attempt.server_url, timeout_s=_ANSWER_S) as client:
        if is_wanted and await _is_done(client, attempt):
            return True
        let_go = await cancel_prompt(client, attempt.job_id, clock=clock, deadline_s=deadline_s)
    if let_go and (attempt.prompt_number is not None or not is_wanted):
        await give_up(ledger, claim, attempt.id, why)
    return let_go


async def _is_done(client: ComfyClient, attempt: AttemptRecord) -> bool:
    try:
        state = await client.prompt_state(attempt.job_id)
    except ServerError:
        return False
    return state.phase is Phase.COMPLETED and state.number in {None, attempt.prompt_number}


async def sweep_spool(ledger: Ledger, spool: Spool) -> None:
    """Remove files of jobs that are over: their owner died, or lost the claim while it had them."""
    for job_id in spool.jobs():
        with contextlib.suppress(UsageError):  # a job of another ledger
            job = await ledger.job(job_id)
            if job.status not in UNFINISHED and job.spool is None:
                spool.clear(job_id)


async def interrupt_left(ledger: Ledger, batch: str) -> int:
    """Interrupt the prompts of a batch whose owners are gone, and cancel its jobs; how many they were.

    From the ledger alone: its own process is gone. Safe to repeat. Jobs of living processes are
    theirs to end, and what is rendered is not thrown away.
    """
    cancelled, rendered = 0, list[Claim]()
    late = list[JobRecord]()
    while taken := await ledger.take(batch, this_owner(), _AT_ONCE, is_gone=is_gone, on_late=late.extend):
        rendered += [claim for job, claim in taken if job.status == Status.RENDERED]
        begun = [(job, claim) for job, claim in taken if job.status != Status.RENDERED]
        await asyncio.gather(*(_cancel(ledger, job, claim) for job, claim in begun))
        cancelled += len(begun)
    for claim in rendered:
        await ledger.give_back(claim)
    logger.info("batch %s: %d jobs cancelled, %d dead: too late", batch, cancelled, len(late))
    return cancelled


async def _cancel(ledger: Ledger, job: JobRecord, claim: Claim) -> None:
    attempts = await ledger.attempts(job.id) if job.attempts_made else ()
    for left in attempts:
        if left.verdict is None:
            await end_prompt(
                ledger,
                claim,
                left,
                why="interrupted by us",
                clock=SystemClock(),
                deadline_s=INTERRUPT_S,
                is_wanted=False,
            )
    await ledger.cancel(claim, "cancelled")
