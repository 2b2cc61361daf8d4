"""Time, as a value that tests can push. The only module that sleeps or reads the wall clock."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What the core needs of time."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        ...


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine is suspended, as a lease in the database does."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)


def pause(seconds: float) -> None:
    """Block the thread. For code without an event loop only (process supervision, the command)."""
    time.sleep(seconds)
