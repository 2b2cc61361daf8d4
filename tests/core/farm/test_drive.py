"""The loop that takes jobs: a few ahead, until nothing is left to anyone."""

import asyncio
from typing import Any, cast

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.errors import FarmError, InputError, LedgerError, SpoolError
from comfyfarm.farm.drive import drive
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.stopping import Stop
from comfyfarm.farm.taken import TakenJob


class SwiftClock(SystemClock):
    """Does not wait."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


class Jobs:
    """A shard as `drive` sees it: numbers in place of jobs."""

    def __init__(self, count: int, *, others: int = 0) -> None:
        self.left = list(range(count))
        self.others = others
        self.are_left = True
        self.looks_before_a_lane = 0
        self.open = self.interrupted = self.left_prompts = 0
        self.closed = False
        self.most_open = 0
        self.ran: list[Any] = []
        self.given_back: list[tuple[int, str]] = []

    @property
    def lanes(self) -> "Jobs":
        return self

    def room(self, open_jobs: int) -> int:
        return 2 - open_jobs

    async def began(self, timeout_s: float) -> bool:
        self.looks_before_a_lane -= 1
        await SystemClock().sleep(0)
        return self.looks_before_a_lane < 0

    async def take(self, most: int) -> tuple[Any, ...]:
        assert self.looks_before_a_lane < 0, "taken without a GPU"
        taken, self.left = self.left[:most], self.left[most:]
        return tuple(Numbered(number) for number in taken)

    async def is_finished(self) -> bool:
        self.others -= 1
        return self.others < 0

    async def give_back(self, job: Any, *, note: str) -> None:
        self.given_back.append((job.id, note))

    async def interrupt(self, *, cancelled: bool) -> None:
        assert not cancelled
        self.interrupted += 1

    async def leave(self) -> None:
        self.left_prompts += 1

    def close(self) -> None:
        self.closed = True

    @property
    def is_busy(self) -> bool:
        return self.open > 0

    async def run(self, job: Any) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await SystemClock().sleep(0.001)
        self.open -= 1
        self.ran.append(job.id)


class Numbered:
    def __init__(self, number: int) -> None:
        self.id = number


async def driven(jobs: Jobs, run: Any = None, *, stop: Stop | None = None) -> bool:
    driving = drive(cast(Shard, jobs), run or jobs.run, clock=SwiftClock(), stop=stop)
    return await asyncio.wait_for(driving, 10)


async def test_nothing_is_taken_before_a_lane_has_its_gpu() -> None:
    jobs = Jobs(3, others=5)
    jobs.looks_before_a_lane = 3
    await driven(jobs)

    assert jobs.ran == [0, 1, 2]


async def test_every_job_runs_and_no_more_than_the_window_at_once() -> None:
    jobs = Jobs(7)
    await driven(jobs)

    assert sorted(jobs.ran) == list(range(7))
    assert jobs.most_open == 2


async def test_it_waits_for_what_other_processes_may_give_back() -> None:
    jobs = Jobs(0, others=3)
    await driven(jobs)

    assert jobs.others == -1


async def test_it_ends_without_lanes() -> None:
    jobs = Jobs(5)

    async def run(job: TakenJob) -> None:
        await jobs.run(job)
        jobs.are_left = False

    await driven(jobs, run)

    assert 1 <= len(jobs.ran) <= 2


async def test_one_jobs_own_trouble_does_not_end_the_others() -> None:
    jobs = Jobs(4)

    async def run(job: Any) -> None:
        if job.id == 1:
            raise KeyError("asset")
        await jobs.run(job)

    await driven(jobs, run)

    assert sorted(jobs.ran) == [0, 2, 3]
    assert jobs.given_back == [(1, "'asset'")]


@pytest.mark.parametrize(
    ("error", "interrupted"),
    [(LedgerError("it is gone"), 0), (SpoolError("it is gone"), 0), (InputError("it is gone"), 1)],
)
async def test_what_a_job_raises_ends_it_and_is_raised_as_it_is(error: FarmError, interrupted: int) -> None:
    jobs = Jobs(5)
    cancelled: list[int] = []

    async def run(job: Any) -> None:
        if job.id == 1:
            raise error
        try:
            await SystemClock().sleep(30)
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    with pytest.raises(type(error), match="it is gone"):
        await driven(jobs, run)

    assert cancelled == [0]
    assert (jobs.interrupted, jobs.left_prompts) == (interrupted, 1 - interrupted)


async def slow(jobs: Jobs, stop: Stop, *, again: bool) -> bool:
    """Whether the job that runs when the stop is asked for came to its end, half a second later."""
    ended = []

    async def run(job: Any) -> None:
        jobs.open += 1
        try:
            if not stop.is_asked or again:
                stop.ask()
            await SystemClock().sleep(0.5)
            ended.append(job.id)
        finally:
            jobs.open -= 1

    assert not await driven(jobs, run, stop=stop)
    return bool(ended)


async def test_a_stop_lets_what_runs_end_and_begins_nothing_new() -> None:
    jobs = Jobs(9)
    assert await slow(jobs, Stop(), again=False)

    assert len(jobs.left) >= 7
    assert jobs.closed
    assert jobs.interrupted == 1


async def test_a_second_wish_or_the_end_of_the_grace_interrupts() -> None:
    both = Jobs(9)
    assert not await slow(both, Stop(), again=True)
    assert len(both.left) == 7
    assert not await slow(Jobs(9), Stop(grace_s=0.1), again=False)


async def test_a_stop_does_not_wait_for_a_job_that_is_on_no_server() -> None:
    jobs, stop = Jobs(1), Stop()

    async def wait_before_a_retry(_job: Any) -> None:
        stop.ask()
        await SystemClock().sleep(60)

    assert not await driven(jobs, wait_before_a_retry, stop=stop)
    assert stop.left_s > 20


async def test_a_cancel_goes_through() -> None:
    jobs = Jobs(1)

    async def run(_job: Any) -> None:
        await SystemClock().sleep(30)

    task = asyncio.create_task(driven(jobs, run))
    await SystemClock().sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
