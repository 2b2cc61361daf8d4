"""The hand-out between jobs and lanes: who gets what, who is told that there is nothing more."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from comfyfarm.clock import SystemClock
from comfyfarm.pool.handout import Handout

A, B, C = "http://a:1", "http://b:1", "http://c:1"


async def soon(awaited: Awaitable[Any]) -> Any:
    """The result, which must not need anything else to happen."""
    return await asyncio.wait_for(awaited, 5)


async def waits(task: "asyncio.Task[Any]") -> bool:
    """Whether the task still waits once everybody has had many turns."""
    for _ in range(50):
        await SystemClock().sleep(0)
    return not task.done()


async def test_jobs_come_out_in_the_order_in_which_they_went_in() -> None:
    handout: Handout[str] = Handout()
    handout.open_lane(A)
    for name in ("first", "second"):
        handout.put(name)

    assert [await soon(handout.take(A)) for _ in range(2)] == ["first", "second"]


async def test_a_taker_that_waits_is_woken_by_a_job() -> None:
    handout: Handout[str] = Handout()
    handout.open_lane(A)
    taker = asyncio.create_task(handout.take(A))
    assert await waits(taker)

    handout.put("job")

    assert await soon(taker) == "job"


async def test_a_lane_gets_nothing_before_it_opens() -> None:
    handout: Handout[str] = Handout([A])
    handout.put("job")
    taker = asyncio.create_task(handout.take(A))
    assert await waits(taker)

    handout.open_lane(A)

    assert await soon(taker) == "job"


async def test_a_job_ahead_waits_until_the_place_is_free() -> None:
    handout: Handout[str] = Handout(depth=2)
    handout.open_lane(A)
    for name in "123":
        handout.put(name)
    assert [await soon(handout.take(A)) for _ in range(2)] == ["1", "2"]
    third = asyncio.create_task(handout.take(A))
    assert await waits(third)

    handout.done(A)

    assert await soon(third) == "3"


async def test_two_lanes_share_before_one_takes_ahead() -> None:
    handout: Handout[str] = Handout()
    handout.open_lane(A)
    handout.open_lane(B)
    handout.put("1")
    assert await soon(handout.take(A)) == "1"
    handout.put("2")
    ahead = asyncio.create_task(handout.take(A))
    assert await waits(ahead)

    assert await soon(handout.take(B)) == "2"
    handout.put("3")
    assert await waits(ahead)
    handout.put("4")
    assert await soon(ahead) == "3"


async def test_a_pin_is_kept_until_its_lane_opens() -> None:
    handout: Handout[str] = Handout([A, B])
    handout.open_lane(A)
    handout.put("followed", pinned=B)
    taker = asyncio.create_task(handout.take(A))
    assert await waits(taker)

    handout.open_lane(B)

    assert await soon(handout.take(B)) == "followed"
    assert await waits(taker)
    taker.cancel()


async def test_a_pin_survives_a_lane_that_is_shut_for_a_while() -> None:
    handout: Handout[str] = Handout([A, B])
    handout.open_lane(A)
    handout.open_lane(B)
    handout.shut_lane(B)
    handout.put("followed", pinned=B)
    other = asyncio.create_task(handout.take(A))
    own = asyncio.create_task(handout.take(B))
    assert await waits(other)

    handout.open_lane(B)

    assert await soon(own) == "followed"
    other.cancel()


async def test_a_pin_ends_with_its_lane() -> None:
    handout: Handout[str] = Handout([A, B])
    handout.open_lane(A)
    handout.put("before", pinned=B)
    taker = asyncio.create_task(handout.take(A))
    assert await waits(taker)

    handout.leave(B)

    assert await soon(taker) == "before"
    handout.put("after", pinned=B)
    handout.put("stranger", pinned=C)
    assert await soon(handout.take(A)) == "after"
    handout.done(A)
    assert await soon(handout.take(A)) == "stranger"


async def test_an_avoided_server_gets_the_job_only_when_it_is_alone() -> None:
    handout: Handout[str] = Handout([A, B])
    handout.open_lane(A)
    handout.open_lane(B)
    handout.put("job", avoid=frozenset({A}))
    taker = asyncio.create_task(handout.take(A))
    assert await waits(taker)

    handout.leave(B)

    assert await soon(taker) == "job"


async def test_a_withdrawn_job_goes_to_nobody() -> None:
    handout: Handout[str] = Handout()
    handout.put("job")

    assert handout.withdraw("job")
    assert not handout.withdraw("job")
    handout.open_lane(A)
    handout.put("other")
    assert await soon(handout.take(A)) == "other"
    assert not handout.withdraw("other")


async def test_a_lane_that_left_is_told_so_and_the_others_go_on() -> None:
    handout: Handout[str] = Handout()
    handout.open_lane(A)
    handout.open_lane(B)
    takers = [asyncio.create_task(handout.take(A)) for _ in range(2)]
    assert await waits(takers[0])

    handout.leave(A)

    assert await soon(asyncio.gather(*takers)) == [None, None]
    assert handout.lanes == (B,)
    handout.put("job")
    assert await soon(handout.take(B)) == "job"


async def test_closing_wakes_everybody_and_gives_back_what_waited() -> None:
    handout: Handout[str] = Handout([A, B, C])
    handout.open_lane(A)
    takers = [asyncio.create_task(handout.take(url)) for url in (A, A, B)]
    handout.put("kept for c", pinned=C)
    assert await waits(takers[0])

    assert handout.close() == ("kept for c",)
    assert await soon(asyncio.gather(*takers)) == [None, None, None]
    assert handout.close() == ()
    assert await soon(handout.take(A)) is None


async def test_what_a_lane_has_in_flight_counts_also_after_it_was_shut() -> None:
    handout: Handout[str] = Handout([A, B])
    handout.open_lane(A)
    handout.open_lane(B)
    handout.put("1")
    assert await soon(handout.take(A)) == "1"
    handout.shut_lane(A)
    handout.open_lane(A)
    handout.put("2")
    busy = asyncio.create_task(handout.take(A))

    assert await waits(busy)
    assert await soon(handout.take(B)) == "2"
    busy.cancel()


async def test_a_cancelled_taker_takes_no_job_with_it() -> None:
    handout: Handout[str] = Handout()
    handout.open_lane(A)
    gone = asyncio.create_task(handout.take(A))
    assert await waits(gone)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)

    handout.put("job")

    assert await soon(handout.take(A)) == "job"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", A, B]), st.sampled_from([None, A, B])), max_size=12),
    st.integers(1, 3),
)
def test_every_job_reaches_exactly_one_lane(jobs: list[tuple[str, str | None]], depth: int) -> None:
    asyncio.run(_all_come_out(jobs, depth))


async def _all_come_out(jobs: list[tuple[str, str | None]], depth: int) -> None:
    handout: Handout[int] = Handout([A, B], depth=depth)
    got: list[tuple[str, int]] = []

    async def lane(url: str) -> None:
        handout.open_lane(url)
        while (job := await handout.take(url)) is not None:
            got.append((url, job))
            await SystemClock().sleep(0)
            handout.done(url)
            if len(got) == len(jobs):
                handout.close()

    workers = [asyncio.create_task(lane(url)) for url in (A, B) for _ in range(depth)]
    for number, (avoided, pin) in enumerate(jobs):
        handout.put(number, pinned=pin, avoid=frozenset({avoided} - {""}))
    if not jobs:
        handout.close()
    await asyncio.wait_for(asyncio.gather(*workers), 10)

    assert sorted(job for _, job in got) == list(range(len(jobs)))
    assert all(jobs[job][1] in {None, url} for url, job in got)
