"""The answers that all routes share: bare JSON, the two-line 500, the origin check."""

import ipaddress
import json
import logging
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

_LOG = logging.getLogger(__name__)
_TROUBLE = "500 Internal Server Error\n\nServer got itself in trouble"
# What a handler of the real server may run into with a body it did not expect.
_MISHAPS = (TypeError, ValueError, KeyError, AttributeError, OSError, IndexError, AssertionError)


def json_answer(body: Any, *, status: int = 200) -> web.Response:
    """A JSON answer; NaN goes out bare, as it does there."""
    return web.Response(text=json.dumps(body), status=status, content_type="application/json")


def trouble() -> web.Response:
    """The answer to whatever the server did not expect."""
    return web.Response(text=_TROUBLE, status=500)


@web.middleware
async def mishaps(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an unexpected body into the fixed 500 text."""
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except _MISHAPS as exc:
        _LOG.info("%s %s: %r", request.method, request.path, exc)
        return trouble()


@web.middleware
async def origins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a page of another origin sends. Source: [rec: origin_checks]."""
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return web.Response(status=403)
    if _is_foreign(request.headers.get("Host", ""), request.headers.get("Origin", "")):
        return web.Response(status=403)
    if request.method == "OPTIONS":
        return web.Response()
    return await handler(request)


def _is_foreign(host: str, origin: str) -> bool:
    host_name, origin_name = host.lower(), urlsplit(origin).netloc.lower()
    if not host_name or not origin_name or not _is_loopback(urlsplit(f"//{host_name}").hostname):
        return False
    if urlsplit(f"//{origin_name}").port is None:
        host_name = urlsplit(f"//{host_name}").hostname or ""
    if urlsplit(f"//{host_name}").port is None:
        origin_name = urlsplit(f"//{origin_name}").hostname or ""
    return host_name != origin_name


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
