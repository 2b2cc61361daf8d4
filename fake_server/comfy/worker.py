"""The one worker: takes prompts one at a time, and can die as the real one does.

Source: facts of ComfyUI 0.27, sections 1 and 9.
"""

import asyncio
import logging
import time

from pydantic import BaseModel, ConfigDict

from fake_server.comfy.behaviours import Acts, Behaviour
from fake_server.comfy.execute import Aborted, Died
from fake_server.comfy.faults import die
from fake_server.comfy.journal import Journal
from fake_server.comfy.prompts import Entry, Prompts, Woken
from fake_server.comfy.run import PromptRun
from fake_server.comfy.stage import Stage

_LOG = logging.getLogger(__name__)
_SLOW_FACTOR = 10.0
_SLOW_LEAST_S = 2.0


class Order(BaseModel):
    """How a queued prompt is to be treated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    acts: Acts = Acts()
    journal_key: str | None = None


class Worker:
    """Runs what is queued, for ever, or until it dies."""

    def __init__(
        self, prompts: Prompts, stage: Stage, *, journal: Journal, prompt_seconds: float, history_lag_s: float
    ) -> None:
        self.dead = False
        self.free_memory = False
        self._prompts = prompts
        self._stage = stage
        self._journal = journal
        self._seconds = prompt_seconds
        self._lag_s = history_lag_s
        self._orders: dict[tuple[object, str], list[Order]] = {}

    def expect(self, number: object, prompt_id: str, order: Order) -> None:
        """Say how the prompt of this number and id is to be treated."""
        self._orders.setdefault((number, prompt_id), []).append(order)

    def forget(self) -> None:
        """Be as after a start."""
        self.dead = self.free_memory = False
        self._orders.clear()

    async def run(self) -> None:
        """Work until something fails that the real worker thread does not survive either."""
        try:
            while True:
                await self._one()
        except Died:
            self.dead = True
        except Exception:  # noqa: BLE001 - the top of the worker loop
            self.dead = True
            _LOG.exception("the worker died; HTTP goes on, and nothing runs any more")

    async def _one(self) -> None:
        try:
            ticket, entry = await self._prompts.take()
        except Woken:
            self._apply_flags()
            return
        await self._work(ticket, entry)
        self._apply_flags()

    async def _work(self, ticket: int, entry: Entry) -> None:
        order = self._order(entry)
        if Behaviour.WORKER_DEAD in order.acts:
            self._prompts.put_back(ticket)
            raise Died
        if order.journal_key is not None:
            self._journal.started(order.journal_key)
        began = time.monotonic()
        run = PromptRun(self._stage, entry, acts=order.acts, seconds=self._time_s(order.acts))
        try:
            ending = await run.execute()
        except Aborted:
            await die(self._stage)
        if Behaviour.EXIT_SUCCESS in order.acts:
            await die(self._stage)
        self._stage.log.say("INFO", f"Prompt executed in {time.monotonic() - began:.2f} seconds")
        # The real server writes the history milliseconds after its last message; so does this one.
        await asyncio.sleep(self._lag_s)
        if order.journal_key is not None:
            self._journal.ended(order.journal_key, ending.end)
        kept = {"outputs": ending.outputs, "meta": ending.meta}
        self._prompts.done(ticket, kept, None if Behaviour.NO_STATUS in order.acts else ending.status())
        if Behaviour.NO_HISTORY in order.acts:
            self._prompts.forget([entry[1]])
        self._stage.sockets.send_own("executing", {"node": None, "prompt_id": entry[1]})

    def _order(self, entry: Entry) -> Order:
        orders = self._orders.get((entry[0], entry[1]), [])
        order = orders.pop(0) if orders else Order()
        if not orders:
            self._orders.pop((entry[0], entry[1]), None)
        return order

    def _time_s(self, acts: Acts) -> float:
        if Behaviour.SLOW in acts:
            return acts.number(Behaviour.SLOW, max(_SLOW_FACTOR * self._seconds, _SLOW_LEAST_S))
        return self._seconds

    def _apply_flags(self) -> None:
        if self.free_memory:
            self._stage.cache.clear()
            self.free_memory = False
