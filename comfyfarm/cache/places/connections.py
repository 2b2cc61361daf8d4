"""Connections to one server that are kept for the next request, each in use by one thread at a time.

A body goes from its file to the socket without passing through Python where no TLS is between (`sendfile`),
else in pieces of 1 MiB: memory does not grow with the file.
"""

import base64
import http.client
import os
import ssl
import threading
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

CONNECT_TIMEOUT_S = 10
SILENT_S = 60
"""A store that takes or says nothing for so long is given up; it may be hashing what came."""
PIECE_BYTES = 1 << 20
SEND_BYTES = 4 << 20
"""Handed to the system at once where it copies by itself; what is told of in one go."""
MAX_ANSWER_BYTES = 8 << 20


@dataclass(frozen=True)
class FileSpan:
    """Bytes of an open file that are to be sent."""

    fd: int
    at: int
    length: int
    told: Callable[[int], None]
    """Called with each number of bytes that has gone out."""


Body = bytes | FileSpan


class S3Response(NamedTuple):
    """What the server said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class LinkBroken(Exception):
    """The connection did not hold until the answer was whole. Its text names no address."""

    def __init__(self, words: str, *, was_kept: bool = False) -> None:
        super().__init__(words)
        self.was_kept = was_kept
        """It had served an earlier request: the server may just have closed it for idleness."""


class Connections:
    """To one server, at most `limit` at once."""

    def __init__(self, origin: str, *, limit: int) -> None:
        """`origin`: scheme and host, such as `https://host:9000`. Nothing is opened yet."""
        self._parts = urlsplit(origin)
        self._slots = threading.BoundedSemaphore(limit)
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)
        self._lock = threading.Lock()
        self._is_tls = self._parts.scheme == "https"
        self._proxy = _proxy_of(self._parts.scheme, self._parts.hostname or "")
        self._extra = {} if self._is_tls else _login(self._proxy)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()  # reads every certificate of the system: not before it is needed

    @property
    def host(self) -> str:
        """As the `Host` header says it, without a default port."""
        default = {"http": ":80", "https": ":443"}.get(self._parts.scheme, "")
        return self._parts.netloc.rpartition("@")[2].removesuffix(default)

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: Body = b"") -> S3Response:
        """Send one request and read the whole answer, which is small.

        Raises:
            LinkBroken: the connection could not be made, or did not hold.
            Shrunk: the file is shorter than the stretch of it that is to be sent.
        """
        with self._connection() as (link, is_kept), _named(is_kept):
            _send(link, method, self._to(target), {**headers, **self._extra}, body)
            answer = link.getresponse()
            data = answer.read(MAX_ANSWER_BYTES)
            if not answer.isclosed():
                link.close()
            return S3Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)

    def read(
        self, target: str, headers: Mapping[str, str], take: Callable[[memoryview], None], *, status: int
    ) -> tuple[S3Response, bool]:
        """Get a large body, handed to `take` in pieces; whether it came whole.

        An answer of another status than this has its body within, as that of `ask`.

        Raises:
            LinkBroken: no answer came.
        """
        with self._connection() as (link, is_kept), _named(is_kept):
            _send(link, "GET", self._to(target), {**headers, **self._extra}, b"")
            answer = link.getresponse()
            told = S3Response(answer.status, {k.lower(): v for k, v in answer.getheaders()}, b"")
            if answer.status != status:
                told = told._replace(body=answer.read(MAX_ANSWER_BYTES))
                if not answer.isclosed():
                    link.close()
                return told, True
            is_whole = _read_all(answer, take)
            if not is_whole:
                link.close()
            return told, is_whole

    def _to(self, target: str) -> str:
        is_direct = self._proxy is None or self._is_tls
        return target if is_direct else f"{self._parts.scheme}://{self.host}{target}"

    @contextmanager
    def _connection(self) -> Iterator[tuple[http.client.HTTPConnection, bool]]:
        with self._slots:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            link = kept or self._open()
            try:
                yield link, kept is not None
            except BaseException:
                link.close()
                raise
            if link.sock is not None:
                with self._lock:
                    self._idle.append(link)

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._proxy is not None:
            host, port = self._proxy.hostname or "", self._proxy.port
        link = (
            http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
            if not self._is_tls
            else http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT_S, context=self._tls)
        )
        if self._proxy is not None and self._is_tls:
            link.set_tunnel(self._parts.hostname or "", self._parts.port or 443, _login(self._proxy))
        with _named(False):
            link.connect()
        link.sock.settimeout(SILENT_S)
        return link


def _close(links: list[http.client.HTTPConnection]) -> None:
    while links:
        links.pop().close()


def _send(
    link: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: Body
) -> None:
    link.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        link.putheader(name, value)
    length = body.length if isinstance(body, FileSpan) else len(body)
    if length or method in {"PUT", "POST"}:
        link.putheader("Content-Length", str(length))
    if isinstance(body, bytes):
        link.endheaders(body or None)
        return
    link.endheaders()
    try:
        _send_span(link, body)
    except (BrokenPipeError, ConnectionResetError):
        # A store that refuses says so before the body is there, and closes: its words count, if they came.
        return


def _send_span(link: http.client.HTTPConnection, body: FileSpan) -> None:
    sock = link.sock
    if isinstance(sock, ssl.SSLSocket):
        piece = memoryview(bytearray(min(PIECE_BYTES, body.length)))
        at = body.at
        while at < body.at + body.length:
            count = os.preadv(body.fd, [piece[: body.at + body.length - at]], at)
            if not count:
                raise Shrunk
            sock.sendall(piece[:count])
            at += count
            body.told(count)
        return
    with open(body.fd, "rb", buffering=0, closefd=False) as file:
        at, end = body.at, body.at + body.length
        while at < end:
            count = sock.sendfile(file, at, min(SEND_BYTES, end - at))
            if not count:
                raise Shrunk
            at += count
            body.told(count)


class Shrunk(Exception):
    """The file is shorter than what was promised of it."""


def _read_all(answer: http.client.HTTPResponse, take: Callable[[memoryview], None]) -> bool:
    buffer = memoryview(bytearray(PIECE_BYTES))
    try:
        while count := answer.readinto(buffer):
            take(buffer[:count])
    except (http.client.HTTPException, OSError):
        return False
    return not answer.length


@contextmanager
def _named(is_kept: bool) -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError:
        raise LinkBroken("its TLS certificate is not trusted") from None
    except TimeoutError:
        raise LinkBroken("silent past the deadline") from None
    except ConnectionRefusedError:
        raise LinkBroken("cannot be reached") from None
    except (ConnectionError, http.client.HTTPException, ssl.SSLError):
        raise LinkBroken("the connection broke off", was_kept=is_kept) from None
    except OSError as exc:
        words = "no such host" if type(exc).__name__ == "gaierror" else "cannot be reached"
        raise LinkBroken(words, was_kept=is_kept) from None


def _proxy_of(scheme: str, host: str) -> SplitResult | None:
    proxy = urllib.request.getproxies().get(scheme)
    return None if not proxy or urllib.request.proxy_bypass(host) else urlsplit(proxy)


def _login(proxy: SplitResult | None) -> dict[str, str]:
    if proxy is None or proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
