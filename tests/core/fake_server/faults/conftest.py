"""A fake with a client, over real sockets, for the tests of its faults."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import pytest

from comfyfarm.clock import SystemClock
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

GRAPH: dict[str, Any] = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 7}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
}
_PATIENCE_S = 20.0
_UPGRADE = (
    "GET /ws?clientId={client_id} HTTP/1.1\r\nHost: fake\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Client:
    """Talks to one fake, with one socket."""

    def __init__(self, url: str, http: aiohttp.ClientSession, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.url = url
        self.http = http
        self.ws = ws

    async def submit(self, prompt_id: str | None = None, **fields: Any) -> tuple[int, str, dict[str, Any]]:
        """POST the graph: the status, the id that was asked for, the body if it is JSON."""
        prompt_id = prompt_id or str(uuid.uuid4())
        body = {"prompt": GRAPH, "prompt_id": prompt_id, "client_id": "me", **fields}
        async with self.http.post("/prompt", json=body) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, prompt_id, await answer.json() if is_json else {}

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as answer:
            return await answer.json()

    async def status(self, path: str) -> int:
        async with self.http.get(path) as answer:
            return answer.status

    async def tell(self, spec: Any, *, status: int = 200) -> None:
        """POST /fake/script."""
        async with self.http.post("/fake/script", json=spec) as answer:
            assert answer.status == status, await answer.text()

    async def next_of(self, kind: str) -> dict[str, Any]:
        while True:
            message = await self.ws.receive_json(timeout=_PATIENCE_S)
            if message["type"] == kind:
                return dict(message["data"])

    async def messages(self, prompt_id: str) -> list[tuple[str, dict[str, Any]]]:
        """What the socket gets until the prompt's end marker."""
        found = []
        while True:
            message = await self.ws.receive_json(timeout=_PATIENCE_S)
            found.append((message["type"], message["data"]))
            data = message["data"]
            if message["type"] == "executing" and data["node"] is None and data["prompt_id"] == prompt_id:
                return found

    async def silence(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes while the connection stays open."""
        with contextlib.suppress(TimeoutError):
            await self.ws.receive(timeout=seconds)
            return False
        return not self.ws.closed

    async def heard(self, seconds: float = 0.2) -> list[str]:
        """The kinds of the messages that come until there is silence."""
        kinds = []
        with contextlib.suppress(TimeoutError):
            while True:
                kinds.append((await self.ws.receive_json(timeout=seconds))["type"])
        return kinds

    async def gone(self) -> None:
        """Wait until nothing listens any more."""
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._refused():
                await SystemClock().sleep(0.005)

    async def back(self) -> None:
        """Wait until something listens again."""
        async with asyncio.timeout(_PATIENCE_S):
            while await self._refused():
                await SystemClock().sleep(0.005)

    async def _refused(self) -> bool:
        try:
            await self.get("/queue")
        except aiohttp.ClientConnectorError:
            return True
        except aiohttp.ClientError:
            return False
        return False

    async def end(self, prompt_id: str) -> dict[str, Any]:
        """The history entry, once it is there."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                history = await self.get(f"/history/{prompt_id}")
                if history:
                    return dict(history[prompt_id])
                await SystemClock().sleep(0.005)

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not ready():
                await SystemClock().sleep(0.005)

    async def picture(self, prompt_id: str) -> dict[str, str]:
        """The one file of a prompt that has ended."""
        entry = (await self.end(prompt_id))["outputs"]["2"]["images"][0]
        return {key: str(value) for key, value in entry.items()}

    async def view(self, entry: dict[str, str]) -> tuple[int, bytes]:
        async with self.http.get(f"/view?{urlencode(entry)}") as answer:
            return answer.status, await answer.read()

    async def raw(self, request: str) -> tuple[bytes, Exception | None]:
        """All that comes back on a connection of its own, and the error that ended it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(self.url).port)
        writer.write(request.encode())
        data, error = b"", None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while chunk := await reader.read(65536):
                    data += chunk
        except OSError as exc:
            error = exc
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return data, error

    async def send_and_leave(self, request: str) -> None:
        """Send, and close the connection without reading."""
        _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(self.url).port)
        writer.write(request.encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def stalled_socket(self, client_id: str) -> socket.socket:
        """A WebSocket that never reads; the caller closes it."""
        connection = socket.create_connection(("127.0.0.1", urlsplit(self.url).port or 0))
        connection.sendall(_UPGRADE.format(client_id=client_id).encode())
        await asyncio.to_thread(connection.recv, 16)
        return connection

    async def reconnect(self, client_id: str = "me") -> None:
        """A new socket in place of the old one."""
        await self.ws.close()
        self.ws = await self.http.ws_connect(f"/ws?clientId={client_id}")


Connect = Callable[..., Any]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Start a fake and connect to it."""
    stack: list[Any] = []

    async def start(**options: Any) -> tuple[FakeComfy, Client]:
        fake = FakeComfy(**options)
        serving = serve(fake.app)
        url = serving.__enter__()
        http = aiohttp.ClientSession(url)
        client = Client(url, http, await http.ws_connect("/ws?clientId=me"))
        stack.append((serving, http, client))
        return fake, client

    yield start
    for serving, http, client in stack:
        await client.ws.close()
        await http.close()
        serving.__exit__(None, None, None)
