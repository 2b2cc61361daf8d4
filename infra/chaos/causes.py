"""Which fault made an attempt fail. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from comfyfarm.ledger.records import AttemptRecord
from infra.chaos.evidence import Execution
from infra.chaos.fault_log import Struck

SLACK_S = 1.5
"""What is seen of a fault, and when it was, are written down by different processes."""
GIVEN_BACK = "given back"


def failed(attempt: AttemptRecord) -> bool:
    """Whether it ended in an outcome that is no success."""
    return attempt.verdict in {"transient", "permanent"} and attempt.reason != GIVEN_BACK


def causes_of(
    attempts: Iterable[AttemptRecord], runs: Mapping[int, Execution], faults: Sequence[Struck]
) -> Mapping[int, Struck | None]:
    """For each failed attempt, by its id, the fault that can have been its cause; None where there was none.

    One that destroyed what the attempt had run (`runs`, by its id) is looked for before one that only
    troubled it. A fault that strikes one prompt is the cause of one attempt.
    """
    shared = [fault for fault in faults if not fault.kind.is_single]
    single = [fault for fault in faults if fault.kind.is_single]
    found: dict[int, Struck | None] = {}
    choices: dict[int, list[int]] = {}
    troubled: dict[int, Struck | None] = {}
    for one in filter(failed, attempts):
        run = runs.get(one.id)
        able = [fault for fault in shared if can_cause(fault, one)]
        found[one.id] = next((fault for fault in able if run is None or destroys(fault, run)), None)
        troubled[one.id] = next(iter(able), None)
        if found[one.id] is None:
            choices[one.id] = _choices(one, run, single)
    matched = _matched(choices)
    for attempt_id in choices:
        place = matched.get(attempt_id)
        found[attempt_id] = troubled[attempt_id] if place is None else single[place]
    return found


def _choices(one: AttemptRecord, run: Execution | None, single: Sequence[Struck]) -> list[int]:
    """Places of the faults that can be its cause: those that destroyed its run, where there are such."""
    able = [place for place, fault in enumerate(single) if can_cause(fault, one)]
    if run is None:
        return able
    fatal = [place for place in able if destroys(single[place], run)]
    return fatal or [place for place in able if not single[place].kind.ends]


def can_cause(fault: Struck, attempt: AttemptRecord) -> bool:
    """Whether it was there, then, and such an end follows from it."""
    ended = attempt.ended if attempt.ended is not None else float("inf")
    return attempt.reason in fault.kind.classes and fault.strikes(
        attempt.server_url, attempt.started, ended, slack_s=SLACK_S
    )


def destroys(fault: Struck, run: Execution) -> bool:
    """Whether it ends what runs, or takes away what was made, and came when the server had the prompt."""
    over = float("inf") if fault.over is None else fault.over
    was_there = run.received <= (fault.begun if fault.kind.is_at_once else over) + SLACK_S
    is_early = fault.kind.is_single and run.received < fault.begun - SLACK_S
    return fault.kind.ends and was_there and not is_early


def true_reasons(attempts: Iterable[AttemptRecord], faults: Iterable[Struck]) -> frozenset[str]:
    """The classes that are true for a job: of what struck the servers of its attempts, while they lasted."""
    known = tuple(faults)
    return frozenset(
        name
        for attempt in attempts
        for fault in known
        if fault.strikes(attempt.server_url, attempt.started, attempt.ended or 1e12, slack_s=SLACK_S)
        for name in fault.kind.classes
    )


def _matched(choices: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """A choice for as many as can have one, none taken twice: a maximum matching."""
    taken: dict[int, int] = {}

    def finds(who: int, seen: set[int]) -> bool:
        for choice in choices[who]:
            if choice in seen:
                continue
            seen.add(choice)
            if choice not in taken or finds(taken[choice], seen):
                taken[choice] = who
                return True
        return False

    for who in choices:
        finds(who, set())
    return {who: choice for choice, who in taken.items()}
