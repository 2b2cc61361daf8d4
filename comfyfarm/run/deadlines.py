"""How long each phase of an attempt may take. Each ends on its own, and says which it was."""

from pydantic import BaseModel, ConfigDict, PositiveFloat

from comfyfarm.run.wedge import WEDGED_S


class Deadlines(BaseModel):
    """All in seconds. The end of one is a cancel, then a transient outcome that names the phase."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    submit_s: PositiveFloat = 60.0
    """Until the server has answered the submission."""
    queue_wait_s: PositiveFloat = 6 * 3600.0
    """Accepted, and waiting behind other people's prompts."""
    quiet_s: PositiveFloat = 60.0
    """Running without any progress: a warning."""
    no_progress_s: PositiveFloat = 300.0
    """Running without any progress: the end."""
    execution_s: PositiveFloat = 600.0
    """From the start of the first node to the end."""
    wedged_s: PositiveFloat = WEDGED_S
    """Prompts are pending and none runs: the server is held for dead."""
    collect_s: PositiveFloat = 600.0
    """Downloading the outputs from the server."""
    cancel_s: PositiveFloat = 15.0
    """Until a cancelled prompt is in neither queue nor execution."""
