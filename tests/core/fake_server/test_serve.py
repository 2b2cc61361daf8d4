"""Serving: many at once, from their own threads, gone without a trace."""

import asyncio
import contextlib
import socket
import threading
import urllib.request

import pytest
from aiohttp import web

from fake_server.serve import serve


def _app() -> web.Application:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=str(request.url.port))

    app = web.Application()
    app.router.add_get("/", hello)
    return app


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:  # noqa: S310
        return str(answer.read().decode())


def test_many_apps_are_served_at_once_and_then_gone() -> None:
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(serve(_app())) for _ in range(5)]

        assert [_get(url) for url in urls] == [url.rsplit(":", 1)[1] for url in urls]

    assert threading.active_count() == before
    with pytest.raises(OSError, match="refused"):
        _get(urls[0])


async def test_asynchronous_code_reaches_it_too() -> None:
    with serve(_app()) as url:
        assert await asyncio.to_thread(_get, url)


def test_a_taken_port_is_the_callers_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(OSError, match="in use"), serve(_app(), port=taken.getsockname()[1]):
            pass
