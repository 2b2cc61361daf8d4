"""Who retries: the table of reasons, and what holds for any history of tries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.run.outcome import SUCCEEDED, Outcome, Reason, Verdict
from comfyfarm.run.retry import Collect, Dead, Retry, RetryPolicy, Tried, delay_cap_s, jittered_s, next_step

A, B, C = "http://a:1", "http://b:1", "http://c:1"
PASSING = [
    Reason.OOM,
    Reason.SERVER,
    Reason.INTERRUPTED,
    Reason.CRASH,
    Reason.DEADLINE,
]


def tried(server: str, reason: Reason | None, *, verdict: Verdict = Verdict.TRANSIENT, wait: float | None = None) -> Tried:  # fmt: skip  # noqa: E501
    outcome = Outcome(verdict=verdict, reason=reason, message="what was said", retry_after_s=wait)
    return Tried(server_url=server, outcome=SUCCEEDED if reason is None else outcome)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([tried(A, None)], "collect"),
        ([tried(A, Reason.SERVER), tried(B, None)], "collect"),
        ([tried(A, Reason.NODE_FAILED, verdict=Verdict.PERMANENT)], "dead"),
        ([tried(A, Reason.INVALID_WORKFLOW, verdict=Verdict.PERMANENT)], "dead"),
        *[([tried(A, reason)], "retry") for reason in PASSING],
        ([tried(A, Reason.OOM)] * 2, "retry"),
        ([tried(A, Reason.OOM)] * 3, "dead"),
        ([tried(A, Reason.OOM), tried(B, Reason.SERVER), tried(A, Reason.OOM)], "retry"),
        ([tried(A, Reason.CRASH)] * 2, "dead"),
        ([tried(A, Reason.CRASH), tried(B, Reason.CRASH)], "dead"),
        ([tried(A, Reason.SERVER)] * 3, "retry"),
        ([tried(A, Reason.SERVER)] * 4, "dead"),
        ([tried(A, Reason.CRASH), tried(B, Reason.SERVER)], "retry"),
    ],
)
def test_what_follows_from_the_tries_so_far(history: list[Tried], expected: str) -> None:
    step = next_step(history, RetryPolicy())

    assert type(step).__name__.lower() == expected


def test_the_dead_letter_is_the_last_outcome() -> None:
    last = tried(B, Reason.NODE_FAILED, verdict=Verdict.PERMANENT)
    step = next_step([tried(A, Reason.SERVER), last], RetryPolicy())

    assert step == Dead(outcome=last.outcome)


def test_a_server_that_may_still_know_the_prompt_is_preferred() -> None:
    lost = tried(A, Reason.SERVER).model_copy(update={"may_run": True})
    step = next_step([tried(B, Reason.SERVER), lost], RetryPolicy())

    assert isinstance(step, Retry)
    assert (step.prefer, step.avoid) == (A, frozenset())


def test_a_job_that_crashes_two_servers_is_permanent() -> None:
    step = next_step([tried(A, Reason.CRASH), tried(B, Reason.CRASH)], RetryPolicy())

    assert isinstance(step, Dead)
    assert step.outcome.verdict is Verdict.PERMANENT
    assert step.outcome.reason is Reason.CRASHES_SERVERS
    assert step.outcome.message == "crashed 2 servers; the last one: what was said"


def test_a_job_that_crashes_one_server_twice_may_pass_later() -> None:
    step = next_step([tried(A, Reason.CRASH), tried(A, Reason.CRASH)], RetryPolicy())

    assert isinstance(step, Dead)
    assert step.outcome.verdict is Verdict.TRANSIENT


def test_the_server_says_how_long_to_wait_at_least() -> None:
    policy = RetryPolicy(cap_s=60)
    short = next_step([tried(A, Reason.SERVER, wait=7.0)], policy)
    long = next_step([tried(A, Reason.SERVER, wait=3600.0)], policy)

    assert isinstance(short, Retry)
    assert short.least_s == 7.0
    assert isinstance(long, Retry)
    assert long.least_s == 60.0


outcomes = st.builds(
    tried,
    st.sampled_from([A, B, C]),
    st.sampled_from([*PASSING, Reason.NODE_FAILED]),
    wait=st.none() | st.floats(0, 1e6),
).map(
    lambda one: (
        one.model_copy(update={"outcome": one.outcome.model_copy(update={"verdict": Verdict.PERMANENT})})
        if one.outcome.reason is Reason.NODE_FAILED
        else one
    )
)
policies = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 8),
    oom_retries=st.integers(0, 4),
    crash_retries=st.integers(0, 4),
    base_s=st.floats(0.01, 10),
    cap_s=st.floats(0.01, 600),
)


def lived(history: list[Tried], policy: RetryPolicy) -> list[Tried]:
    """The tries that really come to pass: nothing follows once a step is not `Retry`."""
    for count in range(1, len(history) + 1):
        if not isinstance(next_step(history[:count], policy), Retry):
            return history[:count]
    return history


@given(st.lists(outcomes, min_size=1, max_size=20), policies)
def test_no_job_gets_more_tries_than_the_policy_allows(history: list[Tried], policy: RetryPolicy) -> None:
    tries = lived(history, policy)

    assert len(tries) <= policy.attempts
    reasons = [one.outcome.reason for one in tries]
    assert reasons.count(Reason.OOM) <= policy.oom_retries + 1
    assert reasons.count(Reason.CRASH) <= policy.crash_retries + 1


@given(st.lists(outcomes, min_size=1, max_size=20), policies)
def test_no_job_crashes_three_servers(history: list[Tried], policy: RetryPolicy) -> None:
    crashed = {one.server_url for one in lived(history, policy) if one.outcome.reason is Reason.CRASH}

    assert len(crashed) <= 2


@given(st.lists(outcomes, min_size=1, max_size=8), policies)
def test_a_permanent_outcome_ends_it_and_a_retry_avoids_the_last_server(
    history: list[Tried], policy: RetryPolicy
) -> None:
    step = next_step(history, policy)

    if history[-1].outcome.verdict is Verdict.PERMANENT:
        assert step == Dead(outcome=history[-1].outcome)
    if isinstance(step, Retry):
        assert step.avoid == {history[-1].server_url}
        assert 0 <= step.cap_s <= policy.cap_s
        assert 0 <= step.least_s <= policy.cap_s
        assert str(history[-1].outcome.reason) in step.reason


@given(policies, st.integers(0, 40))
def test_delays_grow_up_to_their_cap(policy: RetryPolicy, retry: int) -> None:
    assert delay_cap_s(0, policy) == min(policy.base_s, policy.cap_s)
    assert delay_cap_s(retry, policy) <= delay_cap_s(retry + 1, policy) <= policy.cap_s


def test_a_success_is_collected_whatever_was_before() -> None:
    assert next_step([*[tried(A, Reason.SERVER)] * 9, tried(A, None)], RetryPolicy()) == Collect()


@given(st.floats(0, 600), st.floats(0, 1), st.floats(0, 600))
def test_the_jitter_is_full_but_never_below_what_the_server_asked_for(
    cap_s: float, share: float, least_s: float
) -> None:
    assert jittered_s(cap_s, share) == share * cap_s
    assert jittered_s(cap_s, share, least_s=least_s) == max(least_s, share * cap_s)
