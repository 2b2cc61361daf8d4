"""One server at work for a shard: takes jobs, keeps the next prompt submitted while one runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from comfyfarm.clock import Clock
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.supervision import Supervisor
from comfyfarm.errors import NoLane, ServerError
from comfyfarm.ids import JobId
from comfyfarm.pool.handout import Handout
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import Reason

logger = logging.getLogger(__name__)

DEPTH = 2  # prompts of ours on one server: one runs, one waits, so that the GPU never does
_PROBE_S = 1.0
_GIVE_UP_S = 180.0  # a server that is silent for so long leaves the shard


@dataclass(eq=False)
class Errand:
    """A job on its way to a server and back."""

    job_id: JobId
    attempt: Callable[[Session], Awaitable[Executed]]
    """Runs the attempt on the session of whichever lane takes it."""
    result: asyncio.Future[tuple[Session, Executed]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Lane:
    """Works until the hand-out closes, or until its server is of no use any more."""

    def __init__(
        self, session: Session, handout: Handout[Errand], *, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._session, self._handout, self._clock = session, handout, clock
        self._supervisor = supervisor
        self._healing = asyncio.Lock()
        self._is_over = False

    @property
    def url(self) -> str:
        """The server's base address."""
        return self._session.url

    async def work(self) -> None:
        """Take jobs and run them, two at a time, the second behind the first."""
        self._handout.open_lane(self.url)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(DEPTH):
                    group.create_task(self._work())
        finally:
            self._handout.leave(self.url)

    async def _work(self) -> None:
        while not self._is_over:
            errand = await self._handout.take(self.url)
            if errand is None:
                return
            executed = await self._run(errand)
            self._handout.done(self.url)
            if executed is not None:
                await self._after(executed)

    async def _run(self, errand: Errand) -> Executed | None:
        """Run it and hand the result over; None when it raised, or nobody waits for it any more."""
        try:
            executed = await errand.attempt(self._session)
        except asyncio.CancelledError:
            if not errand.result.done():
                errand.result.set_exception(NoLane(f"the lane of {self._session.client.shown_url} has ended"))
            raise
        except Exception as exc:  # noqa: BLE001 - handed to whoever waits for the job
            if not errand.result.done():
                errand.result.set_exception(exc)
            return None
        if not errand.result.done():
            errand.result.set_result((self._session, executed))
        return executed

    async def _after(self, executed: Executed) -> None:
        """What the outcome says of the server, before it gets more."""
        if executed.stuck:
            await self._rescue(executed.outcome.message)
        elif executed.outcome.reason is Reason.OOM:
            await self._session.client.free()
        elif executed.outcome.reason in {Reason.SERVER, Reason.CRASH}:
            await self._heal()

    async def _rescue(self, why: str) -> None:
        """A server that only a restart can help: have it restarted, or take it out of use."""
        if self._session.condemned:
            return  # the other prompt of ours found it, too
        shown = self._session.client.shown_url
        self._session.condemn(f"given up, since the server is to be restarted: {why}")
        self._handout.shut_lane(self.url)
        async with self._healing:
            logger.error("%s is of no use until it is restarted: %s", shown, why)
            if await self._supervisor.restart(self.url, why):
                self._session.absolve()
                self._handout.open_lane(self.url)
                return
            logger.error("%s is quarantined: nobody here can restart it", shown)
            self._end()

    async def _heal(self) -> None:
        """Take nothing more until the server answers again; end the lane when it does not."""
        async with self._healing:
            if self._is_over or await self._answers():
                return
            self._handout.shut_lane(self.url)
            logger.warning("%s does not answer; its lane waits", self._session.client.shown_url)
            end = self._clock.monotonic() + _GIVE_UP_S
            while self._clock.monotonic() < end:
                await self._clock.sleep(_PROBE_S)
                if self._session.condemned:
                    return  # whoever condemned it waits to have it restarted
                if await self._answers():
                    self._handout.open_lane(self.url)
                    return
            self._end()

    async def _answers(self) -> bool:
        try:
            await self._session.client.system_stats()
        except ServerError:
            return False
        return True

    def _end(self) -> None:
        self._is_over = True
        self._handout.leave(self.url)
