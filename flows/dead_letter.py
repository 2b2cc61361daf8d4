"""Tells Prefect of a dead job: an event that automations can act on, and an artifact with the evidence."""

import logging

from prefect.artifacts import acreate_markdown_artifact
from prefect.events import emit_event

from comfyfarm.ledger.records import JobRecord
from comfyfarm.run.outcome import Outcome

logger = logging.getLogger("comfyfarm.flows.dead_letter")

EVENT = "comfyfarm.job.dead-lettered"
_SHOWN = 20_000  # characters; the whole evidence is in the ledger


async def announce_dead_letter(job: JobRecord, outcome: Outcome) -> None:
    """Tell of a job that an attempt ended for good."""
    reason = f"{outcome.reason}: {outcome.message}"
    await _announce(job, reason, reason_class=str(outcome.reason or ""), evidence=outcome.evidence)


async def announce_late(job: JobRecord) -> None:
    """Tell of a job that was not begun by its deadline."""
    await _announce(job, job.reason, reason_class=job.reason_class or "", evidence="")


async def _announce(job: JobRecord, reason: str, *, reason_class: str, evidence: str) -> None:
    """Emit the event and write the artifact. The ledger is what counts: a failure here is only logged."""
    try:
        emit_event(
            EVENT,
            resource={
                "prefect.resource.id": f"comfyfarm.job.{job.id}",
                "prefect.resource.name": job.id,
                "comfyfarm.batch": job.batch,
            },
            payload={"batch": job.batch, "reason": reason, "reason_class": reason_class},
        )
        await acreate_markdown_artifact(
            key=f"dead-letter-{job.id}", markdown=_letter(job, reason, evidence), description=reason
        )
    except Exception as exc:  # noqa: BLE001 - whatever Prefect's API says, the job is buried
        logger.warning("job %s: its dead letter does not show in Prefect: %s", job.id, exc)


def _letter(job: JobRecord, reason: str, evidence: str) -> str:
    shown = evidence if len(evidence) <= _SHOWN else f"{evidence[:_SHOWN]}\n[cut: the rest is in the ledger]"
    # Four spaces make code of any text, whatever fences it holds.
    quoted = "\n".join(f"    {line}" for line in shown.splitlines())
    again = f"comfyfarm dead-letters requeue {job.id}"
    return f"# Job {job.id}\n\nBatch {job.batch}: {reason}\n\nAfter a fix: `{again}`\n\n{quoted}\n"
