"""The routes that are the fake's own: its log, its script, a restart."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from fake_server.comfy import script
from fake_server.comfy.answers import json_answer
from fake_server.comfy.behaviours import LASTING, Acts, Behaviour
from fake_server.comfy.conditions import Conditions
from fake_server.comfy.life import Life
from fake_server.comfy.prompts import Prompts
from fake_server.comfy.sockets import Sockets

_ANSWERED_S = 0.05
"""Time for an answer to go out before the process ends."""


class FakeRoutes:
    """Handlers by which a test, or a user, lets things go wrong."""

    def __init__(
        self,
        *,
        life: Life,
        prompts: Prompts,
        sockets: Sockets,
        conditions: Conditions,
        log: Callable[[], list[dict[str, Any]]],
        set_script: Callable[[script.Script], None],
    ) -> None:
        self._life = life
        self._prompts = prompts
        self._sockets = sockets
        self._conditions = conditions
        self._log = log
        self._set_script = set_script
        self._later: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        """The routes under /fake."""
        return [
            web.get("/fake/log", self.get_log),
            web.get("/fake/script", self.get_script),
            web.post("/fake/script", self.post_script),
            web.post("/fake/restart", self.post_restart),
        ]

    async def get_log(self, _request: web.Request) -> web.Response:
        """One object for each prompt that was accepted."""
        return json_answer(self._log())

    async def get_script(self, _request: web.Request) -> web.Response:
        """What is switched on now, and how many starts there were."""
        on = [str(Acts(words=(each,))) for each in self._conditions.acts().words]
        return json_answer({"now": on, "boots": self._life.boots})

    async def post_script(self, request: web.Request) -> web.Response:
        """Replace the script for prompts, and do what is to be done now."""
        spec = script.decode(await request.text())
        try:
            wish = script.read_wish(spec)
        except script.BadScript as exc:
            return json_answer({"error": str(exc)}, status=400)
        if wish.replaces:
            self._set_script(script.Script(spec))
        for acts in wish.now:
            await self._do(acts, request)
        return web.Response()

    async def post_restart(self, request: web.Request) -> web.Response:
        """Restart: `{"down_s": 1.5}`, answered when the server is back."""
        try:
            down_s = float(json.loads(await request.text() or "{}").get("down_s", 0.0))
        except (ValueError, TypeError, AttributeError):
            return json_answer({"error": 'the body is {"down_s": SECONDS}, or empty'}, status=400)
        await self._life.restart(down_s, spare=request.transport)
        return json_answer({"boots": self._life.boots})

    async def _do(self, acts: Acts, request: web.Request) -> None:
        if Behaviour.OK in acts:
            self._conditions.end()
        self._conditions.switch_on(Acts(words=tuple(each for each in acts.words if each[0] in LASTING)))
        if Behaviour.FORGET_HISTORY in acts:
            self._prompts.history.clear()
        if Behaviour.WORKER_DEAD in acts:
            self._life.kill_worker()
        if Behaviour.FORGET_CLIENT in acts:
            self._sockets.forget()
        if Behaviour.DROP in acts:
            self._sockets.cut()
        if Behaviour.RESTART in acts:
            await self._life.restart(acts.number(Behaviour.RESTART, 0.0), spare=request.transport)
        if Behaviour.EXIT in acts:
            self._soon(self._life.exit())

    def _soon(self, end: Any) -> None:
        async def answered() -> None:
            await asyncio.sleep(_ANSWERED_S)
            await end

        task = asyncio.create_task(answered())
        self._later.add(task)
        task.add_done_callback(self._later.discard)
