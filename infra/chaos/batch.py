"""The batch: a job file, and what each of its jobs must have made in the end."""

import json
import uuid
from pathlib import Path
from random import Random

from pydantic import BaseModel, ConfigDict

from infra.chaos.fakes import ROOT

WORKFLOW = ROOT / "infra" / "demo_data" / "model_free.json"
DEADLINES = {
    "submit_s": 6.0,
    "queue_wait_s": 90.0,
    "quiet_s": 2.0,
    "no_progress_s": 8.0,
    "execution_s": 16.0,
    "wedged_s": 4.0,
    "collect_s": 40.0,
    "cancel_s": 3.0,
}
"""Short, so that prompts which hang or are lost are found within the batch's minutes."""
_SIDE_PX = 64


class Planned(BaseModel):
    """A job before it is rendered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    files: int
    """How many pictures it makes."""


def plan_jobs(count: int, random: Random) -> tuple[Planned, ...]:
    """Jobs of one to three pictures."""
    return tuple(
        Planned(id=str(uuid.UUID(int=random.getrandbits(128), version=4)), files=1 + number % 3)
        for number in range(count)
    )


def write_jobs(jobs: tuple[Planned, ...], path: Path) -> None:
    """The job file, every job with a colour of its own."""
    with path.open("w", encoding="utf-8") as file:
        for number, job in enumerate(jobs):
            inputs = {"color": number, "batch_size": job.files, "width": _SIDE_PX, "height": _SIDE_PX}
            line = {
                "id": job.id,
                "workflow": str(WORKFLOW),
                "set": {f"1.{name}": value for name, value in inputs.items()},
                "deadlines": DEADLINES,
            }
            file.write(json.dumps(line) + "\n")
