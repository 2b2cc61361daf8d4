"""Signals for a flow that runs in a process of its own: Prefect would take SIGTERM for a crash.

Its flow engine puts a handler of its own in place, in the main thread, where alone it can. So the flow runs
in another one, and the main thread hears the signals for it.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from comfyfarm.farm.stopping import Listen, OnSignal

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


def run_beside_signals(work: Callable[[Listen], int]) -> int:
    """Run `work` in a thread, and give it a way to hear SIGINT and SIGTERM in its event loop.

    While it does not listen there is nothing to be ended in order, and a signal ends the process.
    """
    hearers: list[OnSignal] = []
    results: list[int] = []

    @contextmanager
    def listen(on_signal: OnSignal) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        hearers.append(lambda number: loop.call_soon_threadsafe(on_signal, number))  # type: ignore[arg-type]
        try:
            yield
        finally:
            hearers.clear()

    def hear(number: int, _frame: FrameType | None) -> None:
        if not hearers:
            os._exit(0 if number == signal.SIGTERM else 3)
        hearers[0](signal.Signals(number))

    for number in _NUMBERS:
        signal.signal(number, hear)
    thread = threading.Thread(target=lambda: results.append(work(listen)), name="flow")
    thread.start()
    thread.join()
    return results[0] if results else 3
