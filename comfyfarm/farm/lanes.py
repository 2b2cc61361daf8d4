"""The lanes of a shard: which have begun, which are left, and how all of them are ended."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from comfyfarm.addresses import mask
from comfyfarm.clock import Clock
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.supervision import Supervisor
from comfyfarm.errors import FarmError, NoLane
from comfyfarm.farm.lane import Errand, Lane
from comfyfarm.pool.handout import Handout

logger = logging.getLogger(__name__)


class Lanes:
    """One for each server, by its address. Whoever holds a GPU slot for it calls `work`."""

    def __init__(
        self,
        urls: Iterable[str],
        *,
        handout: Handout[Errand],
        drop_server: Callable[[str], Awaitable[None]],
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        """`drop_server`: called with the server of a lane that is over; it counts no more."""
        self._left = set(urls)
        self._handout, self._drop_server = handout, drop_server
        self._supervisor, self._clock = supervisor, clock
        self._begun: set[str] = set()
        self._first = asyncio.Event()

    @property
    def are_left(self) -> bool:
        """Whether any server is left that could run something."""
        return bool(self._left)

    @property
    def at_work(self) -> int:
        """How many have got their GPU slot and are not over."""
        return len(self._begun & self._left)

    async def began(self, timeout_s: float) -> bool:
        """Whether any lane has got its GPU slot, waited for so long.

        Before that no job should be taken: another shard of the same batch could have run it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._first.wait()
        return self._first.is_set()

    def has_begun(self, url: str) -> bool:
        """Whether the lane of that server ever got its GPU slot."""
        return url in self._begun

    async def work(self, url: str) -> None:
        """Work on one server until `close`, or until the server is of no use any more."""
        self._begun.add(url)
        self._first.set()
        try:
            async with Session(url, clock=self._clock) as session:
                lane = Lane(session, self._handout, clock=self._clock, supervisor=self._supervisor)
                await lane.work()
        finally:
            await self.lost(url)

    async def lost(self, url: str) -> None:
        """The lane of that server is over, or could never begin; without any the shard is, too."""
        self._left.discard(url)
        self._handout.leave(url)
        try:
            await self._drop_server(url)
        except FarmError as exc:
            logger.warning("%s still counts as a server: %s", mask(url), exc)
        if not self._left:
            self.close()

    def close(self) -> None:
        """Let the lanes end. Jobs that still wait for one are nobody's: whoever waits is told."""
        for errand in self._handout.close():
            if not errand.result.done():
                errand.result.set_exception(NoLane("no server of this shard is left"))
