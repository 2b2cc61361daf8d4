"""Who retries: the only decider. Pure, from the outcomes of a job over all processes."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, PositiveInt

from comfyfarm.run.outcome import Outcome, Reason, Verdict


class RetryPolicy(BaseModel):
    """How often and how soon."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempts: PositiveInt = 4
    """Tries in all, the first included."""
    oom_retries: int = 2
    """Tries after an out-of-memory."""
    crash_retries: int = 1
    """Tries on another server after a server died under the job."""
    base_s: PositiveFloat = 2.0
    """Cap of the first delay; it doubles with each try."""
    cap_s: PositiveFloat = 60.0


class Tried(BaseModel):
    """One attempt that has ended: where, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_url: str
    outcome: Outcome
    may_run: bool = False
    """The server stopped answering in mid-run, and may know the prompt when it is back."""


class Retry(BaseModel):
    """Try again, after a random part of `cap_s` (full jitter) and never before `least_s` seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cap_s: NonNegativeFloat
    least_s: NonNegativeFloat = 0.0
    avoid: frozenset[str] = frozenset()
    """Servers that should not get it while another one can."""
    prefer: str | None = None
    """The server that may still know the prompt: it gets the job if it is back by then."""
    reason: str


class Dead(BaseModel):
    """No further try: the dead letter's reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Outcome


class Collect(BaseModel):
    """It is rendered: only its outputs remain to be brought home."""

    model_config = ConfigDict(frozen=True, extra="forbid")


NextStep = Retry | Dead | Collect


def next_step(tried: Sequence[Tried], policy: RetryPolicy) -> NextStep:
    """What follows from the attempts of a job, oldest first, at least one of them."""
    last = tried[-1].outcome
    if last.verdict is Verdict.SUCCEEDED:
        return Collect()
    if last.verdict is Verdict.PERMANENT:
        return Dead(outcome=last)
    crashed = {one.server_url for one in tried if one.outcome.reason is Reason.CRASH}
    if last.reason is Reason.CRASH and len(crashed) > 1:
        return Dead(outcome=_crashes_servers(last, crashed))
    if len(tried) >= policy.attempts or _count(tried, last.reason) > _allowed(last.reason, policy):
        return Dead(outcome=last)
    return Retry(
        cap_s=delay_cap_s(len(tried) - 1, policy),
        least_s=min(last.retry_after_s or 0.0, policy.cap_s),
        avoid=frozenset() if tried[-1].may_run else frozenset({tried[-1].server_url}),
        prefer=tried[-1].server_url if tried[-1].may_run else None,
        reason=f"{last.reason}: {last.message}",
    )


def delay_cap_s(retry: int, policy: RetryPolicy) -> float:
    """Upper end of the jitter before retry number `retry`, counted from 0, in seconds."""
    return float(min(policy.cap_s, policy.base_s * 2**retry))


def jittered_s(cap_s: float, share: float, *, least_s: float = 0.0) -> float:
    """A delay by full jitter, in seconds, never less than the server asked for.

    `share`: of the cap, drawn anew each time, all from 0 to 1 equally likely.
    """
    return max(least_s, share * cap_s)


def _allowed(reason: Reason | None, policy: RetryPolicy) -> int:
    if reason is Reason.OOM:
        return policy.oom_retries
    if reason is Reason.CRASH:
        return policy.crash_retries
    return policy.attempts


def _count(tried: Sequence[Tried], reason: Reason | None) -> int:
    return sum(1 for one in tried if one.outcome.reason is reason)


def _crashes_servers(last: Outcome, servers: set[str]) -> Outcome:
    return last.model_copy(
        update={
            "verdict": Verdict.PERMANENT,
            "reason": Reason.CRASHES_SERVERS,
            "message": f"crashed {len(servers)} servers; the last one: {last.message}",
        }
    )
