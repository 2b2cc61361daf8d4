"""Breaks something every second, and by a timetable what all depend on, until the batch is finished."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import NamedTuple

from infra.chaos.kinds import DRAWN, FILE_LIMIT, FULL_DISK, LONG_FREEZE, POSTGRES_RESTART, PREFECT_DOWN, Kind
from infra.chaos.strikes import Strikes

EVERY_S = 1.0
_JITTER_S = 3.0


class Timetable(NamedTuple):
    """What happens in each cycle: when, what, and to which worker."""

    cycle_s: float
    entries: tuple[tuple[float, Kind, int], ...]


FULL = Timetable(
    110.0,
    (
        (5.0, LONG_FREEZE, 1),
        (14.0, POSTGRES_RESTART, 0),
        (22.0, PREFECT_DOWN, 0),
        (52.0, FULL_DISK, -1),
        (66.0, FILE_LIMIT, -1),
        (96.0, POSTGRES_RESTART, 0),
    ),
)
"""The last worker has the small disk. In every second cycle it is worker 0 that is frozen."""
SHORT = Timetable(24.0, ((3.0, POSTGRES_RESTART, 0), (8.0, FILE_LIMIT, 0), (14.0, FULL_DISK, -1)))


class _Due(NamedTuple):
    at_s: float
    kind: Kind
    seconds: float
    place: int


class Storm:
    """Everything is drawn from one random source, in one order, whatever happens meanwhile."""

    def __init__(self, strikes: Strikes, random: Random, timetable: Timetable) -> None:
        self._strikes, self._random, self._timetable = strikes, random, timetable
        self._tasks: set[asyncio.Task[None]] = set()
        self.seconds = 0.0
        """How long it lasted."""

    async def rage(self) -> None:
        """Go on until `end` is called.

        Raises:
            RuntimeError: what was broken could not be put right.
        """
        due, begun = self._due(), time.monotonic()
        next_one = next(due)
        for tick in count(1):
            if time.monotonic() - begun >= next_one.at_s:
                self._soon(next_one)
                next_one = next(due)
            self._soon(self._drawn())
            if await self._strikes.wait(begun + tick * EVERY_S - time.monotonic()):
                break
            self._look()
        self.seconds = time.monotonic() - begun
        await asyncio.gather(*self._tasks)

    def end(self) -> None:
        """Break nothing more, and undo what lasts."""
        self._strikes.finish()

    async def abort(self) -> None:
        """Leave everything as it is, at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _due(self) -> Iterator[_Due]:
        cycle_s, entries = self._timetable
        for cycle in count():
            for begin_s, kind, place in entries:
                turn = -place if kind is LONG_FREEZE and cycle % 2 else 0
                at_s = begin_s + cycle * cycle_s + self._random.uniform(0, _JITTER_S)
                yield _Due(at_s, kind, self._lasting(kind), place + turn)

    def _drawn(self) -> _Due:
        (kind,) = self._random.choices(DRAWN, [one.weight for one in DRAWN])
        return _Due(0.0, kind, self._lasting(kind), self._random.randrange(1000))

    def _lasting(self, kind: Kind) -> float:
        return self._random.uniform(*(kind.seconds or (0.0, 0.0)))

    def _soon(self, due: _Due) -> None:
        strike = self._strikes.do(due.kind, due.seconds, due.place)
        self._tasks.add(asyncio.create_task(strike, name=due.kind.name))

    def _look(self) -> None:
        """Raise what a strike raised: whoever waits for the batch should not wait in vain."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            task.result()
