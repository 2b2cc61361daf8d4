"""A file behind an address whose hash nobody knows yet: how long it is, and what it is called."""

import os
import re
from email.message import Message
from urllib.parse import unquote, urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, PositiveInt

from comfyfarm.addresses import mask
from comfyfarm.cache.mirrors.sniff import HEAD_BYTES, what_else
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.web_auth import auth_headers, auth_hint
from comfyfarm.errors import InputError, TryLater

_TIMEOUT_S = 15.0
_REDIRECTS = 10
_LATER = {408, 425, 429}


class Probe(BaseModel):
    """What a source says of its file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: PositiveInt
    """Bytes."""
    name: str
    """As the server calls it, else the last part of the address."""


async def probe(address: str) -> Probe:
    """Ask for the first bytes of a file at an `https://` or `s3://` address.

    Raises:
        InputError: there is no such file, access is denied, or it is no model.
        TryLater: the server did not answer, or cannot say how long the file is.
    """
    if address.lower().startswith(("http://", "https://")):
        return await _probe_web(address)
    size = await open_place(address).size_of("")
    if not size:
        raise InputError(f"{mask(address)}: there is no such file, or it is empty")
    return Probe(size=size, name=address.rpartition("/")[2])


async def _probe_web(address: str) -> Probe:
    # The login goes into a header (below), which httpx drops on a redirect to another host.
    parts = urlsplit(address)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
    asked = {"Range": f"bytes=0-{HEAD_BYTES - 1}", "Accept-Encoding": "identity", "User-Agent": "comfyfarm"}
    headers = {**asked, **auth_headers(address, os.environ)}
    try:
        async with (
            httpx.AsyncClient(follow_redirects=True, max_redirects=_REDIRECTS, timeout=_TIMEOUT_S) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            head = b""
            async for chunk in answer.aiter_bytes():
                head += chunk
                if len(head) >= HEAD_BYTES:
                    break
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as exc:
        # `from None`: its text holds the address that a redirect led to, signature included.
        raise TryLater(f"{mask(address)}: did not answer ({type(exc).__name__})") from None
    return _read_answer(address, answer, head)


def _read_answer(address: str, answer: httpx.Response, head: bytes) -> Probe:
    shown, status = mask(address), answer.status_code
    if status not in {200, 206}:
        hint = auth_hint(address, status, os.environ)
        message = f"{shown}: answered {status}{hint and f'; {hint}'}"
        raise TryLater(message) if status in _LATER or status >= 500 else InputError(message)
    is_page = answer.headers.get("Content-Type", "").lower().startswith("text/html")
    if other := what_else(b"<html" if is_page else head):
        hint = auth_hint(address, 401, os.environ) if is_page else ""
        raise InputError(f"{shown}: is {other}{hint and f'; {hint}'}")
    size = _size(answer)
    if not size:
        raise TryLater(f"{shown}: the server does not say how long the file is")
    return Probe(size=size, name=_name(answer) or _last_part(address))


def _size(answer: httpx.Response) -> int:
    if answer.status_code == 206:
        hit = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("Content-Range", "").strip())
        return int(hit[1]) if hit else 0
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else 0


def _name(answer: httpx.Response) -> str:
    message = Message()
    message["Content-Disposition"] = answer.headers.get("Content-Disposition", "")
    return _plain(message.get_filename() or "")


def _last_part(address: str) -> str:
    return _plain(unquote(urlsplit(address).path)) or "model"


def _plain(name: str) -> str:
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return last if last.isprintable() and last not in {".", ".."} else ""
