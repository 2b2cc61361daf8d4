"""The life of the server's process: its two tasks, its end, and a start that knows of nothing before."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from fake_server.comfy.conditions import Conditions
from fake_server.comfy.prompts import Prompts
from fake_server.comfy.stage import Stage
from fake_server.comfy.worker import Worker
from fake_server.listening import LISTENING


class Life:
    """What runs between a start and an end. A served application ends by falling silent on its port."""

    def __init__(
        self, app: web.Application, *, prompts: Prompts, stage: Stage, worker: Worker, conditions: Conditions
    ) -> None:
        self.boots = 1
        self.on_exit: Callable[[], None] | None = None
        """What ends the true process; without it, the port closes and everything that ran is dropped."""
        self._app = app
        self._prompts = prompts
        self._stage = stage
        self._worker = worker
        self._conditions = conditions
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: set[asyncio.Task[None]] = set()
        stage.exit, stage.restart = self.exit, self.restart_from_within
        stage.sockets.on_fatal = self.exit

    def begin(self) -> None:
        """Start the worker and the sender of messages."""
        self._tasks = [
            asyncio.create_task(self._worker.run()),
            asyncio.create_task(self._stage.sockets.publish()),
        ]

    async def end(self) -> None:
        """Stop both, unless it is one of them that asks."""
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def kill_worker(self) -> None:
        """Let the worker end where it is; HTTP and messages go on."""
        self._worker.dead = True
        if self._tasks:
            self._tasks[0].cancel()

    async def exit(self) -> None:
        """Be gone, at once."""
        if self.on_exit is not None:
            self.on_exit()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if LISTENING in self._app:
            await self._app[LISTENING].vanish()

    async def restart(self, down_s: float, *, spare: asyncio.BaseTransport | None = None) -> None:
        """Be gone, and back after some seconds, with no queue, no history, no cache and no previews."""
        listening = self._app.get(LISTENING, None)
        if listening is not None:
            await listening.vanish(spare=spare)
        await self.end()
        self._forget()
        await asyncio.sleep(down_s)
        self.begin()
        if listening is not None:
            await listening.listen()

    async def restart_from_within(self, down_s: float) -> None:
        """Restart although it is the worker that asks, which does not outlive it."""
        task = asyncio.create_task(self.restart(down_s))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.Event().wait()

    async def over(self) -> None:
        """End for good, with the application."""
        for task in list(self._ending):
            task.cancel()
        await self.end()

    def _forget(self) -> None:
        self.boots += 1
        self._conditions.end()
        self._prompts.clear()
        self._stage.sockets.clear()
        self._stage.forget()
        self._worker.forget()
        temp = self._stage.places.temp_dir
        shutil.rmtree(temp, ignore_errors=True)
        temp.mkdir(parents=True, exist_ok=True)


def lifetime(
    life: Life, at_start: Callable[[], Awaitable[None]]
) -> Callable[[web.Application], AsyncIterator[None]]:
    """The context in which an application is served."""

    async def run(_app: web.Application) -> AsyncIterator[None]:
        await at_start()
        life.begin()
        yield
        await life.over()

    return run
