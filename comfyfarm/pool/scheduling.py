"""Which waiting job a lane gets. Pure."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, NonNegativeInt


class WaitingJob(BaseModel):
    """A job that waits for a lane, oldest first in every list of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pinned: str | None = None
    """The server on which it may be running already: only its lane may look."""
    avoid: frozenset[str] = frozenset()
    """Servers that should not get it while another lane can."""


class LaneLoad(BaseModel):
    """A lane that can take jobs, and how many prompts of ours its server has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    in_flight: NonNegativeInt


def choose(
    waiting: Sequence[WaitingJob], lanes: Sequence[LaneLoad], *, asking: str, depth: int
) -> int | None:
    """Index of the job that the lane of server `asking` should take now, or None.

    An idle lane takes the oldest job that it may. A busy one takes a job *ahead*, so that its GPU
    goes from prompt to prompt without a gap, only while every lane that could come free would
    still find one: no job ever waits behind another while a GPU idles.

    `depth`: prompts of ours that a server may have, the running one included.
    """
    pinned = next((index for index, job in enumerate(waiting) if job.pinned == asking), None)
    if pinned is not None:
        return pinned
    load = {lane.url: lane.in_flight for lane in lanes}
    if load.get(asking, depth) >= depth:
        return None
    open_to_all = [
        index
        for index, job in enumerate(waiting)
        if job.pinned is None and (asking not in job.avoid or load.keys() <= job.avoid)
    ]
    hungry = sum(1 for in_flight in load.values() if in_flight < depth)
    if load[asking] > 0 and len(open_to_all) < hungry:
        return None
    return open_to_all[0] if open_to_all else None
