"""HTTP to one address over httpx's transport: connections, encodings and time limits, and nothing else.

Its client would do more for each request: cookies, redirects, flows of authentication. No ComfyUI needs
them, and for prompts of milliseconds they cost as much again.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, cached_property
from typing import Any

import httpx

SERVER_AUTH = "COMFYFARM_SERVER_AUTH"
"""`user:password` for servers whose address has none: an address is shown in many places."""
LIMIT_BYTES = 256 * 1024 * 1024
"""Of a whole answer. `/object_info` of a server with many packs has some 15 MB; files are streamed."""
_WHOLE = 3
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "comfyfarm"}


class Http:
    """Keeps connections open. Every method raises `httpx.HTTPError` or `httpx.InvalidURL`."""

    def __init__(self, url: str, *, timeout_s: float) -> None:
        """`timeout_s` bounds each connect, each read and each write; user and password in `url` are sent.

        Where `url` has none, those of `COMFYFARM_SERVER_AUTH` are.
        """
        self._url, self._timeout_s = url, timeout_s
        # Servers are on loopback or on the farm's own network: no proxy of the environment applies.
        self._transport = httpx.AsyncHTTPTransport(verify=_certificates(), trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def send(
        self, method: str, path: str, *, timeout_s: float | None = None, **body: Any
    ) -> httpx.Response:
        """The whole answer, whatever its status. `body`: `json`, `data` or `files`, as httpx takes them.

        `timeout_s` bounds all of it; without it, three times the usual bound of each step does.
        """
        whole_s = _WHOLE * self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(whole_s):
                return await self._whole_answer(method, path, timeout_s, body)
        except TimeoutError as exc:  # a byte now and then is in time for each step
            raise httpx.ReadTimeout(f"no whole answer in {whole_s:g} s") from exc

    async def _whole_answer(
        self, method: str, path: str, timeout_s: float | None, body: dict[str, Any]
    ) -> httpx.Response:
        response = await self._answer(method, path, timeout_s, body)
        try:
            response._content = await _bounded(response)  # as aread does, which knows no bound
        finally:
            await response.aclose()
        return response

    @asynccontextmanager
    async def stream(self, path: str, params: dict[str, str]) -> AsyncIterator[httpx.Response]:
        """The answer to a GET, its body still to be read."""
        response = await self._answer("GET", path, None, {"params": params})
        try:
            yield response
        finally:
            await response.aclose()

    async def _answer(
        self, method: str, path: str, timeout_s: float | None, options: dict[str, Any]
    ) -> httpx.Response:
        limit = httpx.Timeout(self._timeout_s if timeout_s is None else timeout_s)
        request = httpx.Request(
            method,
            f"{self._url}{path}",
            headers=self._headers,
            extensions={"timeout": limit.as_dict()},
            **options,
        )
        response = await self._transport.handle_async_request(request)
        response.request = request
        return response

    @cached_property
    def _headers(self) -> dict[str, str]:
        return {**_HEADERS, **authorization(self._url)}


async def _bounded(response: httpx.Response) -> bytes:
    """The whole body, unpacked; a server that lies about what it is could send without end."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > LIMIT_BYTES:
            raise httpx.ReadError(f"an answer of more than {LIMIT_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def has_login(url: str) -> bool:
    """Whether the address has a user or a password of its own."""
    return bool(httpx.URL(url).userinfo)


def authorization(url: str) -> dict[str, str]:
    """The header for user and password of a server's address, or else of `COMFYFARM_SERVER_AUTH`."""
    parts = httpx.URL(url)
    given = f"{parts.username}:{parts.password}" if has_login(url) else os.environ.get(SERVER_AUTH, "")
    return {"Authorization": f"Basic {base64.b64encode(given.encode()).decode()}"} if given else {}


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes tens of milliseconds: once is enough."""
    return httpx.create_ssl_context(trust_env=False)
