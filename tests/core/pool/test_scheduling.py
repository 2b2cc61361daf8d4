"""Which waiting job a lane gets: single cases, then what holds for every set of lanes and jobs."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.pool.scheduling import LaneLoad, WaitingJob, choose

A, B, C = "http://a:1", "http://b:1", "http://c:1"
FREE = WaitingJob()
DEPTH = 2


def lanes(**loads: int) -> list[LaneLoad]:
    return [LaneLoad(url=f"http://{name}:1", in_flight=load) for name, load in loads.items()]


def pinned(url: str) -> WaitingJob:
    return WaitingJob(pinned=url)


def avoiding(*urls: str) -> WaitingJob:
    return WaitingJob(avoid=frozenset(urls))


@pytest.mark.parametrize(
    ("waiting", "loads", "expected"),
    [
        ([], lanes(a=0), None),
        ([FREE], lanes(a=0), 0),
        ([FREE, FREE], lanes(a=1), 0),
        ([FREE], lanes(a=1), 0),
        ([FREE], lanes(a=2), None),
        ([FREE], lanes(a=1, b=0), None),
        ([FREE], lanes(a=1, b=1), None),
        ([FREE], lanes(a=1, b=2), 0),
        ([FREE, FREE], lanes(a=1, b=0), 0),
        ([FREE, FREE], lanes(a=1, b=1, c=0), None),
        ([pinned(B)], lanes(a=0, b=0), None),
        ([pinned(B), FREE], lanes(a=0, b=0), 1),
        ([FREE, pinned(A)], lanes(a=0, b=0), 1),
        ([pinned(A)], lanes(a=2, b=0), 0),
        ([avoiding(A), FREE], lanes(a=0, b=0), 1),
        ([avoiding(A)], lanes(a=0, b=0), None),
        ([avoiding(A)], lanes(a=0), 0),
        ([avoiding(A, B)], lanes(a=0, b=0), 0),
        # Only the first can feed lane b, so a, which is busy, may have the second.
        ([FREE, avoiding(B)], lanes(a=1, b=0), 1),
        ([FREE], lanes(b=0), None),
    ],
)
def test_what_lane_a_gets(waiting: list[WaitingJob], loads: list[LaneLoad], expected: int | None) -> None:
    assert choose(waiting, loads, asking=A, depth=DEPTH) == expected


urls = st.sampled_from([A, B, C])
jobs = st.lists(
    st.builds(WaitingJob, pinned=st.none() | urls, avoid=st.frozensets(urls, max_size=2)), max_size=5
)
farms = st.dictionaries(urls, st.integers(0, DEPTH), min_size=1).map(
    lambda loads: [LaneLoad(url=url, in_flight=load) for url, load in loads.items()]
)


def may_take(job: WaitingJob, url: str, farm: list[LaneLoad]) -> bool:
    if job.pinned is not None:
        return job.pinned == url
    return url not in job.avoid or {lane.url for lane in farm} <= job.avoid


def most_fed(hungry: list[str], waiting: list[WaitingJob], farm: list[LaneLoad]) -> int:
    """How many of the lanes can have a job each, by trying every order: the slow, plain way."""
    best = 0
    for order in permutations(hungry):
        for jobs_in_order in permutations(range(len(waiting)), min(len(order), len(waiting))):
            pairs = zip(order, jobs_in_order, strict=False)
            best = max(best, sum(may_take(waiting[job], url, farm) for url, job in pairs))
    return best


@given(jobs, farms)
def test_no_idle_lane_is_refused_a_job_that_it_may_take(
    waiting: list[WaitingJob], farm: list[LaneLoad]
) -> None:
    for lane in farm:
        if lane.in_flight == 0 and any(may_take(job, lane.url, farm) for job in waiting):
            assert choose(waiting, farm, asking=lane.url, depth=DEPTH) is not None


@given(jobs, farms)
def test_what_a_lane_gets_it_may_take(waiting: list[WaitingJob], farm: list[LaneLoad]) -> None:
    for lane in farm:
        index = choose(waiting, farm, asking=lane.url, depth=DEPTH)
        if index is not None:
            assert may_take(waiting[index], lane.url, farm)


@given(jobs, farms)
def test_a_pinned_job_goes_to_its_lane_before_all_others(
    waiting: list[WaitingJob], farm: list[LaneLoad]
) -> None:
    for lane in farm:
        index = choose(waiting, farm, asking=lane.url, depth=DEPTH)
        own = [place for place, job in enumerate(waiting) if job.pinned == lane.url]
        if own:
            assert index == own[0]


@given(jobs, farms)
def test_a_job_given_ahead_leaves_no_other_lane_hungry(
    waiting: list[WaitingJob], farm: list[LaneLoad]
) -> None:
    for lane in farm:
        index = choose(waiting, farm, asking=lane.url, depth=DEPTH)
        if lane.in_flight == 0 or index is None or waiting[index].pinned is not None:
            continue
        hungry = [one.url for one in farm if one.url != lane.url and one.in_flight < DEPTH]
        left = [*waiting[:index], *waiting[index + 1 :]]
        assert most_fed(hungry, left, farm) == most_fed(hungry, waiting, farm)


@given(jobs, farms)
def test_no_server_gets_more_prompts_than_the_depth_unless_it_has_them_already(
    waiting: list[WaitingJob], farm: list[LaneLoad]
) -> None:
    for lane in farm:
        index = choose(waiting, farm, asking=lane.url, depth=DEPTH)
        if lane.in_flight >= DEPTH and index is not None:
            assert waiting[index].pinned == lane.url


@given(jobs, farms)
def test_of_two_jobs_alike_the_older_goes_first(waiting: list[WaitingJob], farm: list[LaneLoad]) -> None:
    for lane in farm:
        index = choose(waiting, farm, asking=lane.url, depth=DEPTH)
        if index is not None:
            assert waiting[index] not in waiting[:index]
