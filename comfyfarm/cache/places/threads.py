"""Blocking work in several threads of our own, waited for without blocking the event loop."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from comfyfarm.cache.gauge import in_thread as begin

_T = TypeVar("_T")

LEAVE_WITHIN_S = 2.0
"""A request that is stalled at a cancel is left to end by itself; nobody waits for it."""


def in_threads(works: Sequence[Callable[[], None]], *, at_once: int) -> None:
    """Do all, so many at a time; with the first failure no more are begun, and it is raised."""
    todo, failures, lock = iter(works), list[BaseException](), threading.Lock()

    def run() -> None:
        while (work := _next(todo, lock)) is not None and not failures:
            try:
                work()
            except BaseException as exc:  # noqa: BLE001 - handed whole to whoever waits
                failures.append(exc)

    threads = [threading.Thread(target=run, name="upload", daemon=True) for _ in works[:at_once]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


async def run_in_thread(work: Callable[[], _T], *, stop: threading.Event) -> _T:
    """Wait for work in a thread of its own; a cancel sets `stop`, and leaves it after 2 s.

    Not an executor: the interpreter joins its threads at exit, and would wait for a stalled request.
    """
    done = asyncio.wrap_future(begin(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([done], timeout=LEAVE_WITHIN_S)
        if not done.cancel() and not done.cancelled():
            done.exception()
        raise


def _next(todo: Iterator[Callable[[], None]], lock: threading.Lock) -> Callable[[], None] | None:
    with lock:
        return next(todo, None)
