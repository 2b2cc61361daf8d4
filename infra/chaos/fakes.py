"""Fake ComfyUI servers as processes of their own, started again on the same port whenever they end."""

import asyncio
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx

from infra.chaos.processes import Group, start_group

OnEnd = Callable[["Fake", bool], Callable[[], None]]
ROOT = Path(__file__).resolve().parents[2]
_PORTS = range(18_000, 30_000)
"""Below those that connections take by themselves, one of which could sit on a dead server's port."""
_AGAIN_S = 0.5
_ANSWER_S = 2.0


class Fake:
    """One server. `keep_up` is a task that starts it again."""

    def __init__(self, number: int, *, folder: Path, port: int, prompt_s: float) -> None:
        self.number, self.port, self.prompt_s = number, port, prompt_s
        self.url = f"http://127.0.0.1:{port}"
        self._folder = folder / f"server-{number}"
        self._folder.mkdir()
        self.journal = self._folder / "journal.jsonl"
        self.ends: Counter[int] = Counter()
        """How often it ended, by exit code."""
        self.is_up = asyncio.Event()
        self.is_frozen = False
        self.on_end: OnEnd | None = None
        """Told when it ended, and whether by a signal; what it gives back is called when it is up again."""
        self._down_s = _AGAIN_S
        self._group: Group | None = None

    async def keep_up(self) -> None:
        """Start it, and again whenever it ends, until cancelled."""
        try:
            is_back = None
            while True:
                group = await self._start()
                if is_back is not None and self.is_up.is_set():
                    is_back = is_back()
                code = await group.wait()
                self.ends[code] += 1
                self.is_up.clear()
                self.is_frozen = False
                if self.on_end is not None and is_back is None:
                    is_back = self.on_end(self, code < 0)
                down_s, self._down_s = self._down_s, _AGAIN_S
                await asyncio.sleep(down_s)
        finally:
            if self._group is not None:
                await self._group.end()

    def kill(self, down_s: float) -> None:
        """End it at once; it is back after so many seconds."""
        self._down_s = down_s
        self._send(signal.SIGKILL)

    def freeze(self) -> None:
        """Let it do nothing at all, with its sockets open."""
        self.is_frozen = True
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)
        self.is_frozen = False

    async def tell(self, script: dict[str, Any]) -> bool:
        """Hand it a script; whether it took it."""
        try:
            async with httpx.AsyncClient(timeout=_ANSWER_S, trust_env=False) as client:
                answer = await client.post(f"{self.url}/fake/script", json=script)
        except httpx.HTTPError:
            return False
        return answer.is_success

    async def is_idle(self) -> bool:
        """Whether nothing runs or waits on it."""
        try:
            async with httpx.AsyncClient(timeout=_ANSWER_S, trust_env=False) as client:
                queue = (await client.get(f"{self.url}/queue")).json()
        except (httpx.HTTPError, ValueError):
            return False
        return not queue["queue_running"] and not queue["queue_pending"]

    def _send(self, number: signal.Signals) -> None:
        if self._group is not None:
            self._group.send(number)

    async def _start(self) -> Group:
        command = [sys.executable, "-m", "fake_server", "comfy", "--port", str(self.port)]
        command += ["--prompt-seconds", str(self.prompt_s), "--journal", str(self.journal)]
        for name in ("models", "input", "output", "temp"):
            command += [f"--{name}-dir", str(self._folder / name)]
        self._group = await start_group(command, log=self._folder / "server.log", cwd=ROOT)
        if (await self._group.first_line).startswith("http"):
            self.is_up.set()
        return self._group


def free_ports(count: int, random: Random) -> list[int]:
    """Ports that nobody has now."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            if port not in found and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
    return found
