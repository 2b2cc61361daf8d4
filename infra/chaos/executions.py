"""How often prompts were run, and whether every run too many was destroyed by a fault. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from comfyfarm.ledger.records import AttemptRecord
from infra.chaos.causes import SLACK_S, causes_of, destroys, failed
from infra.chaos.evidence import Evidence, Execution
from infra.chaos.fault_log import Struck
from infra.chaos.figures import Figure, none_of, told
from infra.chaos.kinds import LONG_FREEZE

_WANTED = ""
_ERROR = "prompt oom or error"
_RAISES = frozenset({"oom", "error"})
_WAKES_S = 3.0


def executions(evidence: Evidence, faults: Sequence[Struck]) -> Iterator[Figure]:
    """The runs as the servers' own journals count them."""
    sent = [(run, attempt_of(run, evidence.attempts)) for run in evidence.executions]
    runs = {attempt.id: run for run, attempt in sent if attempt is not None}
    causes = causes_of(evidence.attempts, runs, faults)
    yield none_of("attempts that failed without a cause", _without_cause(evidence, causes))
    fates = [(run, _fate(run, attempt, evidence, causes, faults)) for run, attempt in sent]
    destroyed = Counter(fate for _, fate in fates if fate)
    count, jobs, gone = len(fates), len(evidence.jobs), sum(destroyed.values())
    yield told("executions destroyed", gone)
    yield told("executions destroyed, by fault", dict(destroyed.most_common()))
    bar = f"<= {jobs} jobs + {gone} destroyed"
    yield Figure(name="executions", value=count, bar=bar, ok=count <= jobs + gone)
    yield from _ended_by_faults(evidence.executions, faults)
    yield none_of("executions for nothing", (_said(run) for run, fate in fates if fate is None))


def attempt_of(run: Execution, attempts: Sequence[AttemptRecord]) -> AttemptRecord | None:
    """The attempt that sent the prompt: the last before it by this client on this server."""
    key = (run.prompt_id, run.server, run.client_id)
    sent = [
        one
        for one in attempts
        if (one.job_id, one.server_url, one.client_id) == key and one.started <= run.received + SLACK_S
    ]
    return max(sent, key=lambda one: one.started, default=None)


def _ended_by_faults(runs: Sequence[Execution], faults: Sequence[Struck]) -> Iterator[Figure]:
    """One each: a server runs one prompt at a time, and a word of its script is for one prompt."""
    cut, ends = sum(run.end is None for run in runs), sum(one.kind.is_end_of_server for one in faults)
    name, bar = "executions that their server did not live to see end", f"<= {ends} ends of servers"
    yield Figure(name=name, value=cut, bar=bar, ok=cut <= ends)
    bad, words = sum(run.end == "error" for run in runs), sum(one.kind.name in _RAISES for one in faults)
    name, bar = "executions that ended in an error", f"<= {words} errors told to"
    yield Figure(name=name, value=bad, bar=bar, ok=bad <= words)


def _without_cause(evidence: Evidence, causes: Mapping[int, Struck | None]) -> Iterator[str]:
    for one in evidence.attempts:
        if failed(one) and causes[one.id] is None:
            yield f"{one.job_id} attempt {one.number} on {one.server_url}: {one.reason}: {one.message[:150]}"


def _fate(
    run: Execution,
    attempt: AttemptRecord | None,
    evidence: Evidence,
    causes: Mapping[int, Struck | None],
    faults: Sequence[Struck],
) -> str | None:
    """Empty for one that came to something; else what destroyed it; None when nothing did."""
    if attempt is None:
        return _of_nobody(run, faults)
    if run.end == "error":
        return _ERROR  # whatever its owner saw of it
    if failed(attempt):
        cause = causes[attempt.id]
        return cause.name if cause is not None and destroys(cause, run) else None
    later = [one for one in evidence.attempts_of(attempt.job_id) if one.number > attempt.number]
    if attempt.verdict == "succeeded":
        return None if later else _WANTED
    return _given_up(run, until=later[0].started if later else float("inf"), faults=faults)


def _of_nobody(run: Execution, faults: Sequence[Struck]) -> str | None:
    """Under an id of the server's own, which no attempt has."""
    for fault in faults:
        is_there = fault.kind.name == "other-id" and fault.server == run.server
        if is_there and fault.begun <= run.received + SLACK_S:
            return fault.name
    return None


def _given_up(run: Execution, *, until: float, faults: Sequence[Struck]) -> str | None:
    """No outcome: its owner died, stopped or was fenced off. Was what it left destroyed meanwhile?"""
    for fault in faults:
        is_felt = fault.strikes(run.server, run.received, until, slack_s=SLACK_S)
        if is_felt and ((fault.kind.loses and destroys(fault, run)) or _is_late(fault, run)):
            return fault.name
    return None


def _is_late(fault: Struck, run: Execution) -> bool:
    """Sent by an owner just as it woke up, when its lease was over."""
    over = fault.over or fault.begun
    return fault.kind is LONG_FREEZE and over - SLACK_S <= run.received <= over + _WAKES_S


def _said(run: Execution) -> str:
    took = f"{run.received:.2f} to {run.ended or 0.0:.2f}"
    return f"{run.prompt_id} on {run.server}, {took}, {run.end}, by {run.client_id}"
