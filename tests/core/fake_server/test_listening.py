"""Listening: nothing is left open at the end, whatever the other side does."""

import gc
import socket
import warnings
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from fake_server.serve import serve

_MUCH = b"x" * 2**22
_GREETING = (
    b"GET /ws HTTP/1.1\r\nHost: fake\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def _app() -> web.Application:
    async def much(_request: web.Request) -> web.Response:
        return web.Response(body=_MUCH)

    async def much_by_socket(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        while not ws.closed:
            await ws.send_bytes(_MUCH)
        return ws

    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"some")
        return answer

    app = web.Application()
    app.add_routes([web.get("/much", much), web.get("/ws", much_by_socket), web.get("/cut", cut)])
    return app


def _left_open(use: Callable[[socket.socket], None]) -> list[str]:
    """What the garbage collector complains of, after a client did this while the server ended."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with socket.socket() as client:
            with serve(_app()) as url:
                client.connect(("127.0.0.1", urlsplit(url).port))
                use(client)
            gc.collect()
    return [str(each.message) for each in caught]


def _ask(path: str) -> Callable[[socket.socket], None]:
    def ask(client: socket.socket) -> None:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: fake\r\n\r\n".encode())
        assert client.recv(4)

    return ask


def _greet_and_stop_reading(client: socket.socket) -> None:
    client.sendall(_GREETING)
    assert client.recv(4)


def _say_nothing(client: socket.socket) -> None:
    """Connect only: the server may end while it accepts."""


@pytest.mark.parametrize(
    "use",
    [_ask("/much"), _ask("/cut"), _greet_and_stop_reading, _say_nothing],
    ids=["an answer nobody reads", "a cut answer", "a stalled websocket", "no request"],
)
def test_no_connection_is_left_open_at_the_end(use: Callable[[socket.socket], None]) -> None:
    assert _left_open(use) == []
