"""The queue, what runs, and the history: three places under one roof, as in the real server.

The pending prompts are a heap of plain tuples, so that the order, the ties and the accidents (two entries
with the same number and id cannot be compared) are the real one's.
Source: facts of ComfyUI 0.27's execution.PromptQueue, [rec: queue_*, history_access, same_prompt_id_*].
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import Any

Entry = tuple[Any, str, dict[str, Any], dict[str, Any], list[str]]
"""Number, prompt id, graph, extra data, output nodes to run."""

HISTORY_LIMIT = 10_000


class Prompts:
    """All prompts that this life of the server knows of."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = _ignore
        self.pending: list[Entry] = []
        self.running: dict[int, Entry] = {}
        self.history: dict[str, dict[str, Any]] = {}
        self.number = 0
        self.woken = False
        self._more = asyncio.Condition()
        self._taken = 0

    def remaining(self) -> int:
        """How many prompts wait or run."""
        return len(self.pending) + len(self.running)

    async def put(self, entry: Entry) -> None:
        """Queue a prompt.

        Raises:
            TypeError: it cannot be compared with one of the same number and id; it is queued all the same.
        """
        heapq.heappush(self.pending, entry)
        self.on_change()
        async with self._more:
            self._more.notify()

    async def take(self) -> tuple[int, Entry]:
        """Wait for a prompt and move it from the queue to what runs, in one step."""
        async with self._more:
            await self._more.wait_for(lambda: self.pending or self.woken)
            if not self.pending:
                self.woken = False
                raise Woken
            entry = heapq.heappop(self.pending)
        self._taken += 1
        self.running[self._taken] = entry
        self.on_change()
        return self._taken, entry

    async def wake(self) -> None:
        """Let the worker look at its flags although no prompt came."""
        self.woken = True
        async with self._more:
            self._more.notify()

    def done(self, ticket: int, result: dict[str, Any], status: dict[str, Any] | None) -> None:
        """Move a prompt from what runs into the history, in one step; old servers kept no status."""
        entry = self.running.pop(ticket)
        if len(self.history) > HISTORY_LIMIT:
            self.history.pop(next(iter(self.history)))
        self.history[entry[1]] = {
            "prompt": list(entry),
            "outputs": result["outputs"],
            **({} if status is None else {"status": status}),
            "meta": result["meta"],
        }
        self.on_change()

    def put_back(self, ticket: int) -> None:
        """Let a prompt wait again that was taken and never started."""
        heapq.heappush(self.pending, self.running.pop(ticket))

    def clear(self) -> None:
        """Forget all of them, as a new process does; numbers start at 0."""
        self.pending.clear()
        self.running.clear()
        self.history.clear()
        self.number = 0
        self.woken = False

    def delete_pending(self, prompt_id: object) -> bool:
        """Remove the first pending prompt with this id; later ones with the same id stay."""
        for place, entry in enumerate(self.pending):
            if entry[1] == prompt_id:
                self.pending.pop(place)
                heapq.heapify(self.pending)
                self.on_change()
                return True
        return False

    def clear_pending(self) -> None:
        """Remove all pending prompts, whoever sent them."""
        self.pending.clear()
        self.on_change()

    def is_running(self, prompt_id: object) -> bool:
        """Whether a prompt of this id runs now."""
        return any(entry[1] == prompt_id for entry in self.running.values())

    def history_page(self, max_items: int | None, offset: int) -> dict[str, Any]:
        """A part of the history, oldest first: the newest ones when only `max_items` is given."""
        if offset < 0 and max_items is not None:
            offset = len(self.history) - max_items
        page: dict[str, Any] = {}
        for place, (prompt_id, entry) in enumerate(self.history.items()):
            if place >= offset:
                page[prompt_id] = entry
                if max_items is not None and len(page) >= max_items:
                    break
        return page

    def forget(self, prompt_ids: Iterable[object]) -> None:
        """Remove these ids from the history; unknown ones are passed over."""
        for prompt_id in prompt_ids:
            if isinstance(prompt_id, str):
                self.history.pop(prompt_id, None)


def _ignore() -> None:
    """Tell nobody."""


class Woken(Exception):
    """There is no prompt, but flags to look at."""
