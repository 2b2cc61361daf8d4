"""How each kind of fault is done, and undone when its time is over or the batch is finished."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from infra.chaos.control import Control
from infra.chaos.fakes import Fake
from infra.chaos.fault_log import FaultLog
from infra.chaos.kinds import ENDED, FILE_LIMIT, FULL_DISK, KILL_SERVER, LONG_FREEZE, PREFECT_DOWN, At, Kind
from infra.chaos.workers import Worker

_SUPERVISED_S = 12.0
"""After this, a supervisor would have restarted a server whose worker is dead or stuck."""


class Strikes:
    """Knows everything that can be broken, and writes down what it breaks."""

    def __init__(
        self, fakes: Sequence[Fake], workers: Sequence[Worker], control: Control, log: FaultLog
    ) -> None:
        self._fakes, self._workers, self._control, self._log = fakes, workers, control, log
        self._finished = asyncio.Event()
        self._scripted: dict[str, int] = {}
        self._farm = asyncio.Lock()
        for fake in fakes:
            fake.on_end = self._server_ended

    async def wait(self, seconds: float) -> bool:
        """Wait so long, but not beyond the end of the batch; whether that has come."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._finished.wait()
        except TimeoutError:
            return False
        return True

    def finish(self) -> None:
        """Have everything undone that lasts."""
        self._finished.set()

    async def do(self, kind: Kind, seconds: float, place: int) -> None:
        """Break something; `place` counts servers or workers, and the next ones when that one is away."""
        match kind.at:
            case At.FARM:
                await self._at_farm(kind, seconds)
            case At.WORKER:
                await self._at_worker(kind, seconds, self._workers[place % len(self._workers)])
            case _:
                await self._at_server(kind, seconds, place)

    async def _at_server(self, kind: Kind, seconds: float, place: int) -> None:
        for number in range(len(self._fakes)):
            fake = self._fakes[(place + number) % len(self._fakes)]
            if fake.is_up.is_set() and not fake.is_frozen and await self._strike(kind, seconds, fake):
                return

    async def _strike(self, kind: Kind, seconds: float, fake: Fake) -> bool:
        mark = self._log.begin(kind, server=fake.url)
        if kind.at is At.SERVER:
            await self._at_process(kind, seconds, fake)
            self._log.end(mark)
            return True
        is_prompt = kind.at is At.PROMPT
        word = kind.name if is_prompt or kind.seconds is None else f"{kind.name}:{seconds:.1f}"
        if not await fake.tell({"script": word} if is_prompt else {"now": [word]}):
            self._log.forget(mark)
            return False
        if is_prompt:
            self._log.end(self._scripted.get(fake.url, 0))
            self._scripted[fake.url] = mark
        else:
            await self.wait(seconds)
            self._log.end(mark)
        if kind.is_wedge and not await self.wait(_SUPERVISED_S):
            await self._strike(KILL_SERVER, 0.5, fake)
        return True

    async def _at_process(self, kind: Kind, seconds: float, fake: Fake) -> None:
        if kind is KILL_SERVER:
            fake.kill(down_s=seconds)
            await self.wait(0.1)
            await fake.is_up.wait()
            return
        fake.freeze()
        await self.wait(seconds)
        fake.thaw()

    def _server_ended(self, fake: Fake, was_killed: bool) -> Callable[[], None]:
        """Note that it ended by itself; what is given back is to be called when it is up again."""
        self._log.end(self._scripted.pop(fake.url, 0))
        if was_killed:
            return lambda: None
        mark = self._log.begin(ENDED, server=fake.url)
        return lambda: self._log.end(mark)

    async def _at_worker(self, kind: Kind, seconds: float, worker: Worker) -> None:
        if worker.is_held:
            return
        if kind is FULL_DISK and not worker.has_tmpfs:
            kind = FILE_LIMIT  # its disk is everybody's
        mark = self._log.begin(kind, worker=worker.number)
        if kind is FULL_DISK:
            await self._with_full_disk(worker, seconds)
        elif kind is FILE_LIMIT:
            worker.set_limit(on=True)
            await self.wait(seconds)
            worker.set_limit(on=False)
        elif kind.seconds is not None:
            await self._frozen(worker, seconds, is_held=kind is LONG_FREEZE)
        else:
            worker.send(signal.SIGKILL, alone="alone" in kind.name)
        self._log.end(mark)

    async def _with_full_disk(self, worker: Worker, seconds: float) -> None:
        filling = asyncio.create_task(worker.fill_disk(seconds))
        await self.wait(seconds)
        filling.cancel()
        await asyncio.gather(filling, return_exceptions=True)

    async def _frozen(self, worker: Worker, seconds: float, *, is_held: bool) -> None:
        worker.is_held = is_held
        worker.send(signal.SIGSTOP)
        await self.wait(seconds)
        worker.thaw()
        worker.is_held = False

    async def _at_farm(self, kind: Kind, seconds: float) -> None:
        async with self._farm:
            mark = self._log.begin(kind)
            if kind is PREFECT_DOWN:
                await self._control.kill_prefect()
                await self.wait(seconds)
                await self._control.start_prefect()
            else:
                await self._control.stop_postgres()
                await self._control.start_postgres()
            self._log.end(mark)
