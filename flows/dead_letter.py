"""Tells Prefect of a dead job: an event that automations can act on, and an artifact with the evidence."""

import logging

from prefect.artifacts import acreate_markdown_artifact
from prefect.events import emit_event

from comfyfarm.farm.taken import TakenJob
from comfyfarm.run.retry import Dead

logger = logging.getLogger("comfyfarm.flows.dead_letter")

EVENT = "comfyfarm.job.dead-lettered"
_SHOWN = 20_000  # characters; the whole evidence is in the ledger


async def announce_dead_letter(job: TakenJob, dead: Dead) -> None:
    """Emit the event and write the artifact. The ledger is what counts: a failure here is only logged."""
    outcome = dead.outcome
    reason = f"{outcome.reason}: {outcome.message}"
    try:
        emit_event(
            EVENT,
            resource={
                "prefect.resource.id": f"comfyfarm.job.{job.id}",
                "prefect.resource.name": job.id,
                "comfyfarm.batch": job.record.batch,
            },
            payload={"batch": job.record.batch, "reason": reason, "reason_class": str(outcome.reason or "")},
        )
        await acreate_markdown_artifact(
            key=f"dead-letter-{job.id}", markdown=_letter(job, reason, outcome.evidence), description=reason
        )
    except Exception as exc:  # noqa: BLE001 - whatever Prefect's API says, the job is buried
        logger.warning("job %s: its dead letter does not show in Prefect: %s", job.id, exc)


def _letter(job: TakenJob, reason: str, evidence: str) -> str:
    shown = evidence if len(evidence) <= _SHOWN else f"{evidence[:_SHOWN]}\n[cut: the rest is in the ledger]"
    # Four spaces make code of any text, whatever fences it holds.
    quoted = "\n".join(f"    {line}" for line in shown.splitlines())
    again = f"comfyfarm dead-letters requeue {job.id}"
    return f"# Job {job.id}\n\nBatch {job.record.batch}: {reason}\n\nAfter a fix: `{again}`\n\n{quoted}\n"
