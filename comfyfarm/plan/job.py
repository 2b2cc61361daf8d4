"""A job: one prompt to run once, as a frozen value."""

from pydantic import NonNegativeInt

from comfyfarm.ids import JobId, Sha256
from comfyfarm.plan.job_settings import JobSettings
from comfyfarm.workflow.overrides import Override as Override


class JobSpec(JobSettings):
    """What a job is, before it has run. Its graph is stored apart, under `graph_digest`."""

    id: JobId
    batch: str
    position: NonNegativeInt
    """Place in the batch, from 0: the order of the job file."""
    graph_digest: Sha256
    """Digest of the workflow as the user wrote it (`Workflow.digest`), before overrides."""
    overrides: tuple[Override, ...] = ()
    """Sorted by node and input; unique."""
    content_digest: Sha256
    """SHA-256 over graph digest and overrides: equal for equal work."""
