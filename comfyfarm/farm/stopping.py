"""A wish to stop, made by signals: nothing new is begun, and what runs has a grace time to end."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from comfyfarm.clock import Clock, SystemClock

T = TypeVar("T")
OnSignal = Callable[[signal.Signals], None]
Listen = Callable[[OnSignal], AbstractContextManager[None]]
"""Has signals told to whom it is given, in the running event loop, for as long as it is entered."""

GRACE_S = 30.0
_PATIENCE = 2  # stop, stop now; whoever asks again means it
_SAME_SIGNAL_S = 0.5  # a terminal, or `timeout`, sends one wish twice at once


class Stop:
    """Asked once, it lets what runs end within the grace time; asked again, the grace is over."""

    def __init__(self, *, grace_s: float = GRACE_S, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._grace_s = grace_s
        self._ends: float | None = None
        self._asked = asyncio.Event()
        self.is_watched = False
        """Whether somebody acts on it now; else only a cancel ends the work."""
        self.was_terminated = False
        """Whether it was SIGTERM that asked: an orderly end is then what was wanted."""

    def ask(self) -> None:
        """Stop; a second time: now."""
        now = self._clock.monotonic()
        self._ends = now + self._grace_s if self._ends is None else now
        self._asked.set()

    async def asked(self) -> None:
        """Return as soon as somebody has asked."""
        await self._asked.wait()

    @property
    def is_asked(self) -> bool:
        """Whether nothing new should be begun."""
        return self._ends is not None

    @property
    def left_s(self) -> float:
        """How long what runs may still take, in seconds; without end while nobody asked."""
        return float("inf") if self._ends is None else max(0.0, self._ends - self._clock.monotonic())


stop_of_process: ContextVar[Stop | None] = ContextVar("stop_of_process", default=None)
"""What signals to this process mean, for whoever works through jobs in it."""


@contextmanager
def listening_here(on_signal: OnSignal) -> Iterator[None]:
    """Have the running loop of the main thread hear SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def run_until_stopped(work: Awaitable[T], stop: Stop, *, listen: Listen = listening_here) -> T:
    """Run `work`; SIGINT and SIGTERM ask `stop`, or cancel it where nobody watches that.

    A third signal ends the process. Under `asyncio.run` alone, SIGTERM would end it at once, and
    leave prompts running.

    Raises:
        CancelledError: a signal came before or after there was anything to be stopped in order.
    """
    token = stop_of_process.set(stop)
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    heard: list[float] = []

    def on_signal(number: signal.Signals) -> None:
        if heard and loop.time() - heard[-1] < _SAME_SIGNAL_S:
            return
        heard.append(loop.time())
        if len(heard) > _PATIENCE:
            os._exit(3)
        stop.was_terminated = number is signal.SIGTERM
        if stop.is_watched:
            stop.ask()
        else:
            task.cancel()

    try:
        with listen(on_signal):
            return await task
    finally:
        stop_of_process.reset(token)
