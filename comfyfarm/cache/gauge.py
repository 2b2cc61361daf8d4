"""Work in a thread that tells an event loop how far it is."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Gauge:
    """Counts bytes in the threads of a transfer, and reports them on the event loop, many at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_bytes: Callable[[int], None] | None) -> None:
        self._loop = loop
        self._on_bytes = on_bytes
        self._lock = threading.Lock()
        self._waiting = self._reported = 0
        self._is_called = False

    def add(self, count: int) -> None:
        """So many bytes more; fewer, when they turned out to be worthless. From any thread."""
        if self._on_bytes is None:
            return
        with self._lock:
            self._waiting += count
            if self._is_called:
                return
            self._is_called = True
        # The loop is gone when a stalled read outlives its cancel.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._report)

    def settle(self, size: int) -> None:
        """It is over: so many bytes there are in the end. On the loop only."""
        self._report()
        self._say(size - self._reported)

    def _report(self) -> None:
        with self._lock:
            count, self._waiting, self._is_called = self._waiting, 0, False
        self._say(count)

    def _say(self, count: int) -> None:
        self._reported += count
        if self._on_bytes is not None and count:
            self._on_bytes(count)


def in_thread(work: Callable[[], _T]) -> concurrent.futures.Future[_T]:
    """Run it in a thread that nobody waits for at the process's end, as they do for an executor's."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - handed whole to whoever waits
            future.set_exception(exc)

    threading.Thread(target=run, name="fetch", daemon=True).start()
    return future
