"""How an attempt ended. Values are stored in the ledger, so none is ever renamed."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Verdict(StrEnum):
    """What an outcome means for the job."""

    SUCCEEDED = "succeeded"
    TRANSIENT = "transient"
    """Something around the job was at fault: it may be tried again."""
    PERMANENT = "permanent"
    """The job itself is at fault: no further try can help."""


class Reason(StrEnum):
    """The class of a failure (docs/architecture.md)."""

    INVALID_WORKFLOW = "invalid workflow"
    NODE_FAILED = "node failed"
    OOM = "oom"
    SERVER = "server"
    INTERRUPTED = "interrupted"
    CRASH = "crash"
    CRASHES_SERVERS = "crashes servers"
    DEADLINE = "deadline"
    UPLOAD = "upload"
    CANCELLED = "cancelled"
    GIVEN_BACK = "given back"
    """Its owner stopped or died: no outcome, and it counts against nothing."""


class Outcome(BaseModel):
    """How one attempt ended, with what a person needs to act on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    reason: Reason | None = None
    """None for a success."""
    message: str = ""
    """One line: node, class, type and the first line of what was said."""
    evidence: str = ""
    """The whole of it: body, traceback, last messages. Kept with the dead letter."""
    retry_after_s: float | None = None
    """A server's own `Retry-After`, in seconds."""


SUCCEEDED = Outcome(verdict=Verdict.SUCCEEDED)
