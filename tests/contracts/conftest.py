"""One ComfyUI for all of these tests: the fake in a process of its own, or with COMFYUI_DIR a real one.

The tests do not know which it is. What differs between releases goes by the version of `/system_stats`.
"""

import asyncio
import contextlib
import json
import os
import ssl
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from comfyfarm.clock import SystemClock
from infra.comfy_servers import Served, fake_comfy, real_comfy

Graph = dict[str, dict[str, Any]]
_LOOK_S = 0.02
_QUIET_S = 0.2


class Graphs:
    """Workflows without a model. Each call makes one that no other test has."""

    def picture(self, prefix: str = "", *, side_px: int = 16) -> Graph:
        """One picture, saved: nodes 1 and 2."""
        return {
            "1": node("EmptyImage", width=side_px, height=side_px, batch_size=1, color=_color()),
            "2": node("SaveImage", images=["1", 0], filename_prefix=prefix or f"{uuid.uuid4()}/picture"),
        }

    def slow(self, blurs: int = 150) -> Graph:
        """A chain of blurs, of some tenths of a second each on two cores; the last node, `end`, saves.

        By default so long that nobody waits for its end, on a fast machine either.
        """
        graph = self.picture(side_px=320)
        for place in range(blurs):
            source = ["1" if place == 0 else f"b{place - 1}", 0]
            graph[f"b{place}"] = node("ImageBlur", image=source, blur_radius=31, sigma=10.0)
        graph["end"] = graph.pop("2")
        graph["end"]["inputs"]["images"] = [f"b{blurs - 1}", 0]
        return graph

    def text(self, text: str) -> Graph:
        """A text that node 2 shows."""
        return {"1": node("PrimitiveString", value=text), "2": node("PreviewAny", source=["1", 0])}

    def loaded(self, name: str) -> Graph:
        """An uploaded picture, saved anew by node 2."""
        saved = node("SaveImage", images=["1", 0], filename_prefix=f"{uuid.uuid4()}/copy")
        return {"1": node("LoadImage", image=name), "2": saved}


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def _color() -> int:
    return uuid.uuid4().int % 0xFFFFFF


class Ears:
    """A bare socket, and what it has said so far."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.heard: list[dict[str, Any]] = []

    async def until(self, kind: str, prompt_id: str | None = None, **data: Any) -> dict[str, Any]:
        """Listen until such a message comes; give its data."""
        while True:
            frame = await self._socket.recv()
            if isinstance(frame, bytes):
                continue
            message = json.loads(frame)
            self.heard.append(message)
            found: dict[str, Any] = message["data"]
            if message["type"] != kind or (prompt_id is not None and found.get("prompt_id") != prompt_id):
                continue
            if all(found.get(key, "absent") == value for key, value in data.items()):
                return found

    async def rest(self) -> None:
        """Listen to what still comes within a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await self.until("nothing is called so")

    async def until_over(self, prompt_id: str) -> None:
        """Listen until the prompt of this client has ended."""
        await self.until("executing", prompt_id, node=None)

    def of(self, prompt_id: str) -> list[tuple[str, str | None]]:
        """Types, with their node, of what was said of a prompt."""
        return [
            (message["type"], message["data"].get("node"))
            for message in self.heard
            if message["data"].get("prompt_id") == prompt_id
        ]


class Comfy:
    """The server, by bare HTTP and bare sockets."""

    def __init__(self, url: str, http: httpx.AsyncClient, *, version: tuple[int, ...]) -> None:
        self.url = url
        self.http = http
        self.version = version
        self._timed: dict[str, list[str]] = {}

    async def get(self, path: str, **query: str) -> Any:
        """The JSON of a route that answers 200."""
        response = await self.http.get(path, params=query)
        assert response.status_code == 200, (path, response.status_code, response.text)
        return response.json()

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        """Any answer."""
        return await self.http.post(path, json=body)

    async def submit(self, graph: Graph, **more: Any) -> dict[str, Any]:
        """Have a graph accepted; the server's answer. Without a client id of the test's own, some id."""
        response = await self.post("/prompt", {"prompt": graph, "client_id": uuid.uuid4().hex} | more)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def submit_slow(self, graph: Graph, *, seconds: float = 30.0, **more: Any) -> str:
        """Submit a graph that takes its time. A fake computes nothing: it is told how long that is."""
        prompt_id = more.setdefault("prompt_id", str(uuid.uuid4()))
        self._timed[prompt_id] = [f"slow:{seconds}"]
        told = await self.post("/fake/script", {"by_id": self._timed})
        assert told.status_code in {200, 404, 405}
        await self.submit(graph, **more)
        return str(prompt_id)

    async def phase(self, prompt_id: str) -> str:
        """The word of `/api/jobs/{id}`; `unknown` where it is 404."""
        response = await self.http.get(f"/api/jobs/{prompt_id}")
        if response.status_code == 404:
            return "unknown"
        return str(response.json()["status"])

    async def until_phase(self, prompt_id: str, *phases: str) -> str:
        """Wait for one of these phases."""
        while (phase := await self.phase(prompt_id)) not in phases:
            await SystemClock().sleep(_LOOK_S)
        return phase

    async def history(self, prompt_id: str) -> dict[str, Any] | None:
        """The history entry, if there is one."""
        found = (await self.get(f"/history/{prompt_id}")).get(prompt_id)
        return found if isinstance(found, dict) else None

    async def ended(self, prompt_id: str) -> dict[str, Any]:
        """Wait for the history entry."""
        while (entry := await self.history(prompt_id)) is None:
            await SystemClock().sleep(_LOOK_S)
        return entry

    async def render(self, graph: Graph, **more: Any) -> dict[str, Any]:
        """Submit, and wait for the history entry."""
        return await self.ended((await self.submit(graph, **more))["prompt_id"])

    async def queue(self) -> tuple[list[str], list[str]]:
        """The ids that run, and those that wait, in order."""
        raw = await self.get("/queue")
        running, pending = raw["queue_running"], raw["queue_pending"]
        return [entry[1] for entry in running], [entry[1] for entry in sorted(pending, key=lambda e: e[:2])]

    @asynccontextmanager
    async def listen(self, client_id: str) -> AsyncIterator[Ears]:
        """A socket that the server has greeted."""
        address = f"{self.url.replace('http', 'ws', 1)}/ws?clientId={client_id}"
        async with connect(address, proxy=None, max_size=None) as socket:
            ears = Ears(socket)
            await ears.until("status", sid=client_id)
            yield ears

    async def calm_down(self) -> None:
        """Leave nothing to the next test."""
        await self.post("/queue", {"clear": True})
        while any(await self.queue()):
            await self.post("/interrupt", {})
            await SystemClock().sleep(_LOOK_S)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The server, for all tests."""
    base = tmp_path_factory.mktemp("contracts")
    directory = os.environ.get("COMFYUI_DIR")
    if directory:
        python = os.environ.get("COMFYUI_PYTHON", sys.executable)
        server = real_comfy(Path(directory), python, base)
    else:
        server = fake_comfy(log=base / "fake.log")
    with server as found:
        yield found


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them for each client takes longer than most of these tests."""
    return httpx.create_ssl_context(trust_env=False)


@pytest.fixture
async def comfy(served: Served) -> AsyncIterator[Comfy]:
    async with httpx.AsyncClient(
        base_url=served.url, timeout=30, trust_env=False, verify=_certificates()
    ) as http:
        stats = (await http.get("/system_stats")).json()
        version = tuple(int(part) for part in stats["system"]["comfyui_version"].split(".")[:2])
        found = Comfy(served.url, http, version=version)
        yield found
        await found.calm_down()


@pytest.fixture
def graphs() -> Graphs:
    return Graphs()


@pytest.fixture
def new_id() -> Callable[[], str]:
    return lambda: str(uuid.uuid4())
