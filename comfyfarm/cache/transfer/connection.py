"""One HTTP/1.1 connection that is kept alive: its own socket, the standard library's reading of the head.

A body is received straight into the caller's buffer, by one call of the system for each piece on a plain
socket (`MSG_WAITALL`). Reads block in the kernel, which wakes them each tick: so they notice a stop.
"""

import contextlib
import functools
import http.client
import io
import math
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from comfyfarm.cache.transfer.final_response import RawSocket, final_response
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.origin import Origin
from comfyfarm.clock import SystemClock

_CLOCK = SystemClock()


class Broken(Exception):
    """The connection did not bring what was asked: to be tried again. Its text holds no address."""

    def __init__(self, reason: str, *, is_refused: bool = False, is_silent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_refused = is_refused
        """No connection was made at all."""
        self.is_silent = is_silent
        """What was waited for did not come in time."""


class Untrusted(Exception):
    """The server's TLS certificate is not trusted: trying again changes nothing."""


@dataclass(frozen=True)
class Head:
    """How an answer begins."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""


class Connection:
    """One connection to one origin, for one thread; only `abort` may be called from another."""

    def __init__(self, origin: Origin, *, limits: Limits, check: Callable[[], None]) -> None:
        self.origin = origin
        self.round_trip_s = 0.0
        """How long the head of an answer took to come from when it was asked for."""
        self._limits = limits
        self._check = check
        self._sock: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._ahead = memoryview(b"")
        self._is_aborted = False
        self._patience_s = limits.stall_s
        self._head_until = math.inf

    def open(self) -> None:
        """Connect.

        Raises:
            Broken: nobody answers there.
            Untrusted: somebody else does.
        """
        try:
            sock = socket.create_connection(self.origin[1:], timeout=self._limits.connect_s)
            self._sock = sock
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.origin.scheme == "https":
                self._sock = _tls().wrap_socket(sock, server_hostname=self.origin.host)
            _tick(self._sock, self._limits.tick_s)
        except ssl.SSLCertVerificationError:
            self.close()
            raise Untrusted("its TLS certificate is not trusted") from None
        except OSError as exc:
            self.close()
            raise Broken(_said(exc), is_refused=True) from None
        except ValueError:  # a host that no name server is asked for
            self.close()
            raise Broken("no such host", is_refused=True) from None
        if self._is_aborted:
            self.close()
            raise Broken("was given up")

    def ask(self, target: str, headers: Mapping[str, str]) -> Head:
        """Send a GET, and wait for the head of its answer.

        Raises:
            Broken: the connection broke, or stalled, or does not speak HTTP.
        """
        began = _CLOCK.monotonic()
        self.send(target, headers)
        head = self.head(patience_s=self._limits.stall_s)
        self.round_trip_s = _CLOCK.monotonic() - began
        return head

    def send(self, target: str, headers: Mapping[str, str]) -> None:
        """A GET, perhaps before the body of the one before it has come to its end.

        Raises:
            Broken: the connection broke.
        """
        lines = [f"GET {target} HTTP/1.1", f"Host: {self.origin.shown}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        text = "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace")
        try:
            self._open_socket().sendall(text)
        except OSError as exc:
            raise Broken(_said(exc)) from None

    def head(self, *, patience_s: float) -> Head:
        """Of the answer to what was sent; the body before it has been read to its end.

        Raises:
            Broken: the connection broke, or stalled for so long, or does not speak HTTP.
        """
        self._patience_s = patience_s
        self._head_until = _CLOCK.monotonic() + self._limits.head_s
        try:
            return self._read_head()
        except OSError as exc:
            raise Broken(_said(exc)) from None
        except http.client.RemoteDisconnected:
            raise Broken("the connection was closed before an answer") from None
        except (http.client.HTTPException, ValueError):
            raise Broken("answers something that is not HTTP") from None
        finally:
            self._patience_s = self._limits.stall_s
            self._head_until = math.inf

    def receive(self, view: memoryview) -> int:
        """Some bytes of the body, the whole of `view` where the socket can; 0 at its end.

        Raises:
            Broken: the connection broke or stalled.
        """
        if self._ahead:
            count = min(len(view), len(self._ahead))
            view[:count] = self._ahead[:count]
            self._ahead = self._ahead[count:]
            return count
        try:
            if self._response is not None and self._response.chunked:
                return self._response.readinto(view)
            return self._receive(view)
        except OSError as exc:
            raise Broken(_said(exc)) from None
        except (http.client.HTTPException, ValueError):
            raise Broken("the connection ended before the file") from None

    @property
    def is_open(self) -> bool:
        """Whether it can be asked, as far as is known: the server may have closed it meanwhile."""
        return self._sock is not None

    @property
    def is_kept(self) -> bool:
        """Whether it can be asked again after the present body."""
        response = self._response
        return response is not None and not response.will_close and not response.chunked

    def end_answer(self) -> bool:
        """The body has been read to its end: whether the connection can be asked again."""
        is_kept, self._response = self.is_kept, None
        return is_kept

    def abort(self) -> None:
        """Wake a thread that is blocked in a read. The connection is of no more use."""
        self._is_aborted = True
        if (sock := self._sock) is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket's own, which takes its state away under the reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the socket."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _open_socket(self) -> socket.socket:
        if self._sock is None:
            raise Broken("the connection is closed")
        return self._sock

    def _read_head(self) -> Head:
        raw = RawSocket(self._receive)
        file = io.BufferedReader(raw, 16 << 10)
        self._response = response = final_response(raw, file)
        if not response.chunked and response.fp is not None:
            raw.is_dry = True
            self._ahead = memoryview(bytes(file.peek()))
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Head(response.status, headers)

    def _receive(self, view: memoryview) -> int:
        sock = self._open_socket()
        began = _CLOCK.monotonic()
        while True:
            self._check()
            if _CLOCK.monotonic() >= min(self._head_until, began + self._patience_s):
                raise Broken("silent past the deadline", is_silent=True)
            try:
                if isinstance(sock, ssl.SSLSocket):
                    return self._receive_tls(sock, view)
                return sock.recv_into(view, len(view), socket.MSG_WAITALL if len(view) > _HEAD_BYTES else 0)
            except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
                continue

    def _receive_tls(self, sock: ssl.SSLSocket, view: memoryview) -> int:
        """As much as there is for a tick; TLS gives 16 KiB at a time."""
        count = sock.recv_into(view)
        if len(view) <= _HEAD_BYTES:
            return count
        until = _CLOCK.monotonic() + self._limits.tick_s
        while 0 < count < len(view) and _CLOCK.monotonic() < until:
            try:
                came = sock.recv_into(view[count:])
            except OSError:
                break  # said again by the next read
            if not came:
                break
            count += came
        return count


_HEAD_BYTES = 16 << 10
"""Reads up to this size are those of a head or of a body's last bytes: what has come is taken."""


def _tls() -> ssl.SSLContext:
    return _made_tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _made_tls(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The library reads the two variables itself; reading all certificates takes some 20 ms."""
    return ssl.create_default_context()


def _tick(sock: socket.socket, tick_s: float) -> None:
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(tick_s)  # its reads repeat what the system broke off
        return
    # Python's own time limits make a socket non-blocking, and then MSG_WAITALL waits for nothing.
    sock.settimeout(None)
    limit = struct.pack("ll", int(tick_s), int(tick_s % 1 * 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _said(error: OSError) -> str:
    match error:
        case socket.gaierror():
            return "no such host"
        case TimeoutError():
            return "silent past the deadline"
        case ConnectionRefusedError():
            return "cannot be reached"
        case ConnectionError():
            return "the connection broke off"
        case ssl.SSLError():
            return "TLS failed"
    return f"the connection failed ({error.strerror or type(error).__name__})"
