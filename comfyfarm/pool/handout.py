"""Hands waiting jobs to lanes: our own queue, since a limit of Prefect's is waited for by polling."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from comfyfarm.pool.scheduling import LaneLoad, WaitingJob, choose

Item = TypeVar("Item")


class Handout(Generic[Item]):
    """Jobs go in with `put`, come out with `take`; `done` frees the place that `take` filled."""

    def __init__(self, expected: Iterable[str] = (), *, depth: int = 2) -> None:
        """Make it for the lanes of `expected` servers, which may open later.

        `depth`: prompts of ours that one server may have, the running one included.
        """
        self._depth = depth
        self._expected = set(expected)
        self._jobs: list[tuple[WaitingJob, Item]] = []
        self._lanes: dict[str, None] = {}
        self._in_flight: dict[str, int] = {}
        self._left: set[str] = set()
        self._takers: dict[asyncio.Event, str] = {}
        self._closed = False

    @property
    def lanes(self) -> tuple[str, ...]:
        """Servers whose lanes can take jobs now."""
        return tuple(self._lanes)

    def will_come(self, url: str) -> bool:
        """Whether the lane of that server takes jobs, or may do so later."""
        return url in self._lanes or (url in self._expected and url not in self._left)

    def put(self, item: Item, *, pinned: str | None = None, avoid: frozenset[str] = frozenset()) -> bool:
        """Add a job behind those that wait; False when it is closed, and nobody will ever take it.

        A pin to a server whose lane will never come is no pin.
        """
        if self._closed:
            return False
        job = WaitingJob(pinned=pinned if pinned and self.will_come(pinned) else None, avoid=avoid)
        self._jobs.append((job, item))
        self._wake()
        return True

    def withdraw(self, item: Item) -> bool:
        """Take a job back out; False when a lane has it already."""
        before = len(self._jobs)
        self._jobs = [pair for pair in self._jobs if pair[1] is not item]
        return len(self._jobs) < before

    def open_lane(self, url: str) -> None:
        """A lane can take jobs from now on."""
        self._lanes[url] = None
        self._wake()

    def shut_lane(self, url: str) -> None:
        """A lane takes nothing for now; what is pinned to it waits."""
        self._lanes.pop(url, None)
        self._wake()

    def leave(self, url: str) -> None:
        """The lane will never take anything again; jobs pinned to it are anybody's."""
        self._lanes.pop(url, None)
        self._left.add(url)
        self._jobs = [
            (replace(job, pinned=None) if job.pinned == url else job, item) for job, item in self._jobs
        ]
        self._wake()

    async def take(self, url: str) -> Item | None:
        """The next job for this lane, waited for; None once there will be none for it."""
        while not self._is_over(url):
            index = self._choice(url)
            if index is not None:
                self._in_flight[url] = self._in_flight.get(url, 0) + 1
                item = self._jobs.pop(index)[1]
                self._wake()  # another place may be free for the next job, now that this one is gone
                return item
            await self._woken(url)
        return None

    def done(self, url: str) -> None:
        """The server is through with a job that this lane took."""
        self._in_flight[url] -= 1
        self._wake()

    def close(self) -> tuple[Item, ...]:
        """No lane gets anything more; the jobs that still waited."""
        self._closed = True
        left, self._jobs = tuple(item for _, item in self._jobs), []
        self._wake()
        return left

    async def _woken(self, url: str) -> None:
        news = asyncio.Event()
        self._takers[news] = url
        try:
            await news.wait()
        except asyncio.CancelledError:
            self._takers.pop(news, None)
            self._wake()  # what this one was woken for is another's
            raise

    def _wake(self) -> None:
        """Wake the takers for whom there is something: most of the time that is nobody."""
        woken = [
            news for news, url in self._takers.items() if self._is_over(url) or self._choice(url) is not None
        ]
        for news in woken:
            del self._takers[news]
            news.set()

    def _is_over(self, url: str) -> bool:
        return self._closed or url in self._left

    def _choice(self, url: str) -> int | None:
        if url not in self._lanes or not self._jobs:
            return None
        loads = [LaneLoad(url=lane, in_flight=self._in_flight.get(lane, 0)) for lane in self._lanes]
        return choose([job for job, _ in self._jobs], loads, asking=url, depth=self._depth)
