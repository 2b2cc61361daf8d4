"""The server with which a host gives its whole model files to others; see `protocol` for what is trusted.

Threads, one a connection, of which there is a bounded number: one more is told to come again.
"""

import contextlib
import errno
import ipaddress
import logging
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import HTTPServer
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.peers.handler import PeerHandler, ServedCache
from comfyfarm.cache.peers.identity import cache_id
from comfyfarm.cache.peers.protocol import PEER_ID, checked_token
from comfyfarm.errors import UsageError

_log = logging.getLogger(__name__)

MOST_CONNECTIONS = 128
_MOST_REFUSALS = 32
_REFUSE_S = 1.0
_END_S = 2.0
_POLL_S = 0.05


class PeerServer(ThreadingMixIn, HTTPServer):
    """Listens from the moment it is made; answers while `serving`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, served: ServedCache, place: tuple[Any, ...], *, most_connections: int) -> None:
        self._served = served
        self._slots = threading.BoundedSemaphore(most_connections)
        self._refusals = threading.BoundedSemaphore(_MOST_REFUSALS)
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        super().__init__((place[0], place[1]), partial(PeerHandler, served=served))

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def server_bind(self) -> None:
        """As the class above, without asking the DNS for our name: that may take long."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, or refuse it."""
        if self._slots.acquire(blocking=False):
            with self._changed:
                self._open.add(request)
            self._start(lambda: self._answer(request, client_address), lambda: self._left(request))
        elif self._refusals.acquire(blocking=False):
            self._start(lambda: self._refuse(request), self._refusals.release)
        else:
            self.shutdown_request(request)

    def _start(self, work: Callable[[], None], leave: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                leave()

        try:
            threading.Thread(target=run, name="peer", daemon=True).start()
        except RuntimeError:  # no thread is to be had
            leave()
            raise

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        # It also closes the connection, and tells `handle_error` of what went wrong.
        self.process_request_thread(request, client_address)

    def _left(self, request: socket.socket) -> None:
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()
        self._slots.release()

    def _refuse(self, request: socket.socket) -> None:
        self._served.counts.answered(503)
        lines = ("HTTP/1.1 503 Service Unavailable", f"{PEER_ID}: {self._served.own_id}", "Retry-After: 1",
                 "Content-Length: 0", "Connection: close", "", "")  # fmt: skip
        with contextlib.suppress(OSError):
            request.settimeout(_REFUSE_S)
            request.sendall("\r\n".join(lines).encode())
            request.shutdown(socket.SHUT_WR)
            request.recv(1 << 16)  # a close with bytes unread would reset, and the answer would be lost
        request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the class's signature
        """Peers go away in the middle; a disk that cannot be read ends the connection as well."""
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _log.debug("a peer went away: %s", type(error).__name__)
        else:
            _log.error("a connection ended: %s", type(error).__name__, exc_info=error)

    def end(self) -> None:
        """Stop answering, close every connection, and wait a moment for their threads."""
        self.server_close()
        with self._changed:
            for request in self._open:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, timeout=_END_S)


def open_server(
    blobs: BlobStore,
    *,
    host: str,
    port: int,
    token: str | None,
    most_connections: int = MOST_CONNECTIONS,
    more_metrics: Callable[[], str] = str,
) -> PeerServer:
    """A server of this cache that listens at `host`, port 0 being any free one.

    `more_metrics`: lines for `/metrics` about the cache itself; may raise `OSError`.

    Raises:
        UsageError: no token although others than this machine can connect; the port is taken, or the host
            is not one of ours.
    """
    place = _place(host, port)
    if token is None and not ipaddress.ip_address(place[0].partition("%")[0]).is_loopback:
        raise UsageError(
            f"{host} can be reached from elsewhere: set COMFYFARM_PEER_TOKEN, the same on all hosts"
        )
    shown = None if token is None else checked_token(token)
    served = ServedCache(blobs, _own_id(blobs), shown, more_metrics=more_metrics)
    try:
        return PeerServer(served, place, most_connections=most_connections)
    except OSError as exc:
        taken = "the port is taken; choose another with --port"
        reason = taken if exc.errno == errno.EADDRINUSE else exc.strerror or str(exc)
        raise UsageError(f"cannot listen at {host}, port {port}: {reason}") from exc


def _place(host: str, port: int) -> tuple[Any, ...]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4]
    except (OSError, UnicodeError) as exc:  # the latter: a name that cannot be one
        reason = exc.strerror if isinstance(exc, OSError) else "no name of a host"
        raise UsageError(f"cannot listen at {host!a}: {reason}") from exc


def _own_id(blobs: BlobStore) -> str:
    try:
        return cache_id(blobs.root, disk=blobs.disk)
    except OSError as exc:
        # It can be served all the same, and cannot be hydrated: nobody needs to know it again.
        _log.warning("%s: keeps no id: %s", blobs.root, exc.strerror)
        return secrets.token_hex(16)


@contextlib.contextmanager
def serving(server: PeerServer) -> Iterator[str]:
    """Answer, from a thread of its own; gives the URL. At the end everything is closed."""
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="peer-server", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.end()


@contextlib.contextmanager
def held_signals() -> Iterator[Callable[[], object]]:
    """Hold SIGINT and SIGTERM back; what is given waits for one of them. On the main thread only.

    Not a handler: one that runs while the main thread takes a lock must not take that lock again. Threads
    that are started meanwhile hold them back likewise.
    """
    numbers = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield lambda: signal.sigwait(numbers)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
