"""A far-away server on loopback: a TCP proxy with a round trip and a rate for each connection.

`python -m benchmarks.delay_proxy UPSTREAM_PORT ROUND_TRIP_S BYTES_PER_S` prints its port, and ends with its
stdin. A connect and each request cost one round trip. Answers leave in pieces of 64 KiB, each when its last
byte would have come over such a line; a piece that is late does not move the next one, so the rate is exact.
"""

import contextlib
import heapq
import itertools
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIECE_BYTES = 64 << 10
_QUEUE_BYTES = 1 << 20
_READABLE = select.EPOLLIN | select.EPOLLRDHUP


@dataclass(frozen=True)
class FarServer:
    """The running proxy."""

    port: int
    pid: int


@contextmanager
def far_away(upstream_port: int, *, round_trip_s: float, bytes_per_s: float) -> Iterator[FarServer]:
    """Run the proxy in a process of its own."""
    options = [str(upstream_port), str(round_trip_s), str(bytes_per_s)]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.delay_proxy", *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends it through its stdin
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield FarServer(int(json.loads(process.stdout.readline())["port"]), process.pid)
        finally:
            process.stdin.close()


class Loop:
    """Sockets that became ready, and work that falls due, in one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def watch(self, what: socket.socket | int, ready: Callable[[], None], events: int = _READABLE) -> None:
        """Call `ready` each time that the socket can be read (or written, by `events`)."""
        fd = what if isinstance(what, int) else what.fileno()
        change = self._epoll.modify if fd in self._ready else self._epoll.register
        change(fd, events)
        self._ready[fd] = ready

    def forget(self, what: socket.socket) -> None:
        """Watch it no more."""
        if self._ready.pop(what.fileno(), None) is not None:
            self._epoll.unregister(what.fileno())

    def at(self, due: float, work: Callable[[], None]) -> None:
        """Call `work` at this time of the monotonic clock."""
        heapq.heappush(self._timers, (due, next(self._order), work))

    def run(self) -> None:
        """Until someone raises `SystemExit`."""
        while True:
            wait_s = self._timers[0][0] - time.monotonic() if self._timers else -1.0
            for fd, _events in self._epoll.poll(max(wait_s, 0.0) if self._timers else -1):
                if fd in self._ready:
                    self._ready[fd]()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()


class Line:
    """One client's connection and the one upstream that belongs to it."""

    def __init__(self, loop: Loop, client: socket.socket, upstream: socket.socket, link: "Link") -> None:
        self._loop, self._client, self._upstream, self._link = loop, client, upstream, link
        self._connected_at = time.monotonic() + link.round_trip_s
        self._buffer = bytearray(PIECE_BYTES)
        self._piece = memoryview(b"")
        self._due = 0.0
        """When the last piece's last byte is through."""
        self._closed = False
        loop.watch(client, self._take_request)
        loop.watch(upstream, self._answer_came)

    def _take_request(self) -> None:
        with self._closes_on_error():
            data = self._client.recv(PIECE_BYTES)
            if not data:
                self._close()
                return
            due = max(time.monotonic(), self._connected_at) + self._link.round_trip_s
            self._loop.at(due, lambda: self._pass_on(data))

    def _pass_on(self, request: bytes) -> None:
        if not self._closed:
            with self._closes_on_error():
                self._upstream.sendall(request)  # small: it fits into the socket's buffer

    def _answer_came(self) -> None:
        self._loop.forget(self._upstream)
        self._due = max(self._due, time.monotonic())
        self._next_piece()

    def _next_piece(self) -> None:
        with self._closes_on_error():
            try:
                count = self._upstream.recv_into(self._buffer)
            except BlockingIOError:
                self._loop.watch(self._upstream, self._answer_came)
                return
            if not count:
                self._close()
                return
            self._piece = memoryview(self._buffer)[:count]
            self._due += count / self._link.bytes_per_s
            self._loop.at(self._due, self._deliver)

    def _deliver(self) -> None:
        if self._closed:
            return
        with self._closes_on_error():
            with contextlib.suppress(BlockingIOError):
                self._piece = self._piece[self._client.send(self._piece) :]
            if self._piece:  # the client reads slower than the line: what it misses is lost to it
                self._loop.watch(self._client, self._deliver_late, _READABLE | select.EPOLLOUT)
            else:
                self._next_piece()

    def _deliver_late(self) -> None:
        self._loop.watch(self._client, self._take_request)
        self._due = time.monotonic()
        self._deliver()

    @contextmanager
    def _closes_on_error(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            for each in (self._client, self._upstream):
                self._loop.forget(each)
                each.close()


@dataclass(frozen=True)
class Link:
    """What each connection is like."""

    upstream_port: int
    round_trip_s: float
    bytes_per_s: float


def serve(link: Link) -> None:
    """Print the port, then serve until stdin ends."""
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        listener.setblocking(False)

        def accept() -> None:
            with contextlib.suppress(BlockingIOError):
                client, _ = listener.accept()
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Line(loop, client, _connected(link.upstream_port), link)

        loop.watch(listener, accept)
        loop.watch(sys.stdin.fileno(), sys.exit)
        print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
        loop.run()


def _connected(port: int) -> socket.socket:
    upstream = socket.socket()
    # Small, else the server is far ahead of what the client has.
    upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
    upstream.connect(("127.0.0.1", port))
    upstream.setblocking(False)
    return upstream


if __name__ == "__main__":
    serve(Link(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
