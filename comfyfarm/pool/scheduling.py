"""Which waiting job a lane gets. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for a lane, oldest first in every list of them."""

    pinned: str | None = None
    """The server on which it may be running already: only its lane may look."""
    avoid: frozenset[str] = frozenset()
    """Servers that should not get it while another lane can."""


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """A lane that can take jobs, and how many prompts of ours its server has."""

    url: str
    in_flight: int


def choose(
    waiting: Sequence[WaitingJob], lanes: Sequence[LaneLoad], *, asking: str, depth: int
) -> int | None:
    """Index of the job that the lane of server `asking` should take now, or None.

    An idle lane takes the oldest job that it may. A busy one takes a job *ahead*, so that its GPU
    goes from prompt to prompt without a gap, only while every other lane that could come free would
    still find one that it may take: no job ever waits behind another while a GPU idles.

    `depth`: prompts of ours that a server may have, the running one included.
    """
    pinned = next((index for index, job in enumerate(waiting) if job.pinned == asking), None)
    if pinned is not None:
        return pinned
    load = {lane.url: lane.in_flight for lane in lanes}
    if load.get(asking, depth) >= depth:
        return None
    others = [url for url, in_flight in load.items() if url != asking and in_flight < depth]
    if not any(job.pinned or job.avoid for job in waiting):  # nearly always: any lane may take any job
        return 0 if len(waiting) > (len(others) if load[asking] else 0) else None
    takers = [_takers(job, load.keys()) for job in waiting]
    mine = [index for index, urls in enumerate(takers) if asking in urls]
    if load[asking] == 0:
        return mine[0] if mine else None
    fed = _fed(others, takers)
    return next((i for i in mine if _fed(others, [*takers[:i], *takers[i + 1 :]]) == fed), None)


def _takers(job: WaitingJob, lanes: Collection[str]) -> frozenset[str]:
    """The lanes that may take the job; avoided ones only where there is no other."""
    if job.pinned is not None:
        return frozenset({job.pinned}) & frozenset(lanes)
    return frozenset(lanes) - job.avoid or frozenset(lanes)


def _fed(lanes: Sequence[str], takers: Sequence[frozenset[str]]) -> int:
    """How many of the lanes could get a job each: the size of a maximum matching."""
    job_of: dict[int, str] = {}

    def feeds(lane: str, seen: set[int]) -> bool:
        for index, urls in enumerate(takers):
            if lane in urls and index not in seen:
                seen.add(index)
                if index not in job_of or feeds(job_of[index], seen):
                    job_of[index] = lane
                    return True
        return False

    return sum(feeds(lane, set()) for lane in lanes)
