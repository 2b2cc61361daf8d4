"""Answers gone wrong: refused, cut, reset, never sent. For one POST /prompt, or for any request.

The bytes are written past aiohttp, which would not send such a thing.
"""

import asyncio
import math
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fake_server.comfy.answers import trouble
from fake_server.comfy.behaviours import EARLY, LATE, ROUTES_500, Acts, Behaviour
from fake_server.comfy.conditions import Conditions
from fake_server.listening import reset

ACTS: web.RequestKey[Acts] = web.RequestKey("acts", Acts)
"""What the script gave to the prompt of this request."""

_GARBAGE = b"<html><body>Bad gateway</body></html>"
_RETRY_AFTER_S = 1.0
_SLOW_S = 10.0
_READ_S = 0.02
"""Time for the other side to read what came before a reset."""
_THAW_S = 0.02
_EXTRA = b"\0" * 64


class BadAnswers:
    """The middleware that lets requests fail while the server is told to."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._over = asyncio.Event()

    def release(self) -> None:
        """End the requests that wait for ever: the server ends."""
        self._over.set()

    def middleware(self) -> Middleware:
        """Made for one application."""

        @web.middleware
        async def bad_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path.startswith("/fake/"):
                return await handler(request)
            refusal = await self._instead(request)
            if refusal is not None:
                return refusal
            answer = await handler(request)
            acts = request.get(ACTS, Acts())
            word = acts.any_of(LATE) or self._conditions.acts().any_of(LATE)
            if word is None or isinstance(answer, web.WebSocketResponse):
                return answer
            return await self._spoiled(request, answer, word)

        return bad_answers

    async def _instead(self, request: web.Request) -> web.StreamResponse | None:
        on = self._conditions
        word = on.acts().any_of(EARLY)
        if word is not None:
            left_s = on.left_s(word)
            return refuse(request, word, retry_after_s=_RETRY_AFTER_S if math.isinf(left_s) else left_s)
        path = request.path.removeprefix("/api")
        if any(word in on and path.startswith(route) for word, route in ROUTES_500.items()):
            return trouble()
        if path.startswith("/object_info"):
            delay_s = on.delay_s(Behaviour.SLOW_OBJECT_INFO, _SLOW_S)
            if delay_s:
                await self._wait(delay_s)
        return None

    async def _spoiled(
        self, request: web.Request, answer: web.StreamResponse, word: Behaviour
    ) -> web.StreamResponse:
        if word is Behaviour.NO_ANSWER:
            # One prompt's answer never comes; a server that was frozen answers late.
            while word in self._conditions and not self._over.is_set():
                await self._wait(_THAW_S)
            if word in request.get(ACTS, Acts()):
                await self._wait(None)
            return answer
        if word is Behaviour.ACCEPT_CLOSE:
            return hang_up(request)
        if word is Behaviour.GARBAGE:
            return web.Response(body=_GARBAGE, content_type="text/html")
        return await cut(request, answer, with_reset=word is Behaviour.RST_BODY)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return


def refuse(request: web.Request, word: Behaviour, *, retry_after_s: float) -> web.Response:
    """An answer in place of the work: 500, 503 or 429, or none at all."""
    if word is Behaviour.CLOSE:
        return hang_up(request)
    if word is Behaviour.HTTP_500:
        return trouble()
    status = HTTPStatus(int(word))
    headers = {"Retry-After": str(max(0, math.ceil(retry_after_s)))}
    return web.Response(text=f"{status.value} {status.phrase}", status=status.value, headers=headers)


def hang_up(request: web.Request) -> web.Response:
    """Close the connection without an answer."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


async def cut(request: web.Request, answer: web.StreamResponse, *, with_reset: bool) -> web.Response:
    """Send the first half of an answer, then a reset or an orderly end."""
    body = content_of(answer)
    return await send_raw(request, answer, body[: max(1, len(body) // 2)], len(body) or 2, with_reset)


async def too_long(request: web.Request, answer: web.StreamResponse) -> web.Response:
    """Send more than the stated length."""
    body = content_of(answer)
    return await send_raw(request, answer, body + _EXTRA, len(body), with_reset=False)


async def send_raw(
    request: web.Request, answer: web.StreamResponse, sent: bytes, stated_bytes: int, with_reset: bool
) -> web.Response:
    """Write an answer whose length is not what it says, and end the connection."""
    transport = request.transport
    if transport is None or transport.is_closing():
        return web.Response()
    kind = answer.headers.get("Content-Type", "application/json; charset=utf-8")
    head = f"HTTP/1.1 {answer.status} OK\r\nContent-Type: {kind}\r\nContent-Length: {stated_bytes}\r\n\r\n"
    transport.write(head.encode() + sent)
    if with_reset:
        await asyncio.sleep(_READ_S)
        reset(transport)
    else:
        transport.close()
    return web.Response()


def content_of(answer: web.StreamResponse) -> bytes:
    """The body that an answer would have had."""
    if isinstance(answer, web.FileResponse):
        return answer._path.read_bytes()
    body = answer.body if isinstance(answer, web.Response) else b""
    return bytes(body) if isinstance(body, bytes | bytearray) else b""
