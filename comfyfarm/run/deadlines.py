"""How long each phase of an attempt may take. Each ends on its own, and says which it was."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError

from comfyfarm.errors import UsageError
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


def read_deadlines(words: Sequence[str]) -> Deadlines:
    """Read `execution=1200`, `no-progress=600`, …: a phase as its field is named, and seconds.

    Raises:
        UsageError: no such phase, or no time.
    """
    given: dict[str, str] = {}
    for word in words:
        phase, _, seconds = word.partition("=")
        given[f"{phase.strip().replace('-', '_').removesuffix('_s')}_s"] = seconds
    try:
        return Deadlines.model_validate(given)
    except ValidationError as exc:
        phases = ", ".join(name.removesuffix("_s").replace("_", "-") for name in Deadlines.model_fields)
        raise UsageError(f"--deadline {' '.join(words)}: write PHASE=SECONDS, more than 0; {phases}") from exc
