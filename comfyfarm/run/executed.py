"""What one attempt came to, as its server told it."""

from pydantic import BaseModel, ConfigDict

from comfyfarm.comfy.wire import HistoryEntry
from comfyfarm.run.outcome import Outcome


class Executed(BaseModel):
    """How the execution ended, and the history entry to collect outputs from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome
    entry: HistoryEntry | None = None
    stuck: bool = False
    """The server will not let go of the prompt, or its worker is dead: only a restart helps."""
    may_run: bool = False
    """The server stopped answering; the prompt may still run there."""
