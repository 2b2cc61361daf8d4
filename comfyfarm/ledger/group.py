"""Writes that wait for one writer, and how those who wait for them are told."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection


@dataclass(frozen=True)
class Work:
    """A function of a connection, and who waits for what it returns."""

    work: Callable[[Connection], Any]
    future: "asyncio.Future[Any]"


class Waiting:
    """Work in the order in which it came, for one writer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: deque[Work] = deque()
        self._is_worked_on = False

    def add(self, one: Work) -> bool:
        """Whether the writer must be called: it is not at work."""
        with self._lock:
            self._work.append(one)
            was_worked_on, self._is_worked_on = self._is_worked_on, True
            return not was_worked_on

    def next(self, most: int) -> list[Work]:
        """All that waits, but not more than `most`; nothing: the writer rests. Cancelled work is left out."""
        with self._lock:
            group: list[Work] = []
            while self._work and len(group) < most:
                one = self._work.popleft()
                if not one.future.cancelled():
                    group.append(one)
            self._is_worked_on = bool(group)
            return group


def deliver(group: Sequence[Work], results: Sequence[Any]) -> None:
    """Tell those who wait, from the writer's thread, with one call into their event loop."""

    def tell() -> None:
        for one, result in zip(group, results, strict=True):
            if one.future.done():
                continue
            if isinstance(result, Exception):
                one.future.set_exception(result)
            else:
                one.future.set_result(result)

    # A loop that is closed has nobody left who waits.
    with contextlib.suppress(RuntimeError):
        group[0].future.get_loop().call_soon_threadsafe(tell)
