"""A web server that does what a test says to each request, and a transfer from it into a real landing."""

import contextlib
import hashlib
import random
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from comfyfarm.cache.places.request import Request
from comfyfarm.cache.transfer.budget import Budget
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow

TLS = Path(__file__).parents[3] / "data" / "tls"
HASTY = Limits(
    connect_s=3.0,
    tick_s=0.05,
    stall_s=1.0,
    silent_s=0.3,
    slow_window_s=0.4,
    tries=4,
    first_wait_s=0.005,
    most_wait_s=0.05,
)


@dataclass(frozen=True)
class Ask:
    """One GET. `end` is not included; without a `Range` it is all."""

    nth: int
    path: str
    start: int
    end: int
    is_ranged: bool
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Act:
    """What to do instead of giving what was asked for."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    sends: int | None = None
    """So many bytes of the body only."""
    ending: str = ""
    """Then `close`, `reset`, or `hold` until the test is over."""
    rate: float | None = None
    """Bytes a second."""
    is_whole: bool = False
    """Ignores the range."""
    end: int | None = None
    shift: int = 0
    etag: str = '"v1"'


def _as_asked(ask: Ask) -> Act:
    return Act()


@dataclass
class Faulty:
    """The server: what it has, what it does, what it saw."""

    data: bytes
    url: str = ""
    act: Callable[[Ask], Act] = _as_asked
    asks: list[Ask] = field(default_factory=list)
    sent_bytes: int = 0
    connections: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    """Set once a body is being held back."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faulty: Faulty

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def setup(self) -> None:
        with self.faulty.lock:
            self.faulty.connections += 1
        super().setup()

    def do_GET(self) -> None:
        ask = self._ask()
        act = self.faulty.act(ask)
        data, start = self.faulty.data, 0 if act.is_whole else ask.start
        end = len(data) if act.is_whole else act.end or ask.end
        body = data[start:end] if act.body is None else act.body
        is_part = ask.is_ranged and not act.is_whole
        headers = {"Content-Length": str(len(body)), "Content-Type": "application/octet-stream"}
        if act.etag:
            headers["ETag"] = act.etag
        if is_part and act.status is None:
            headers["Content-Range"] = f"bytes {start + act.shift}-{end - 1 + act.shift}/{len(data)}"
        self.send_response(act.status or (206 if is_part else 200))
        for name, value in (headers | dict(act.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        self._send(body[: act.sends], act)

    def _ask(self) -> Ask:
        wanted, size = self.headers.get("Range"), len(self.faulty.data)
        first, _, last = (wanted or "").removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last) + 1, size) if last else size
        with self.faulty.lock:
            ask = Ask(len(self.faulty.asks) + 1, self.path, start, end, bool(wanted), dict(self.headers))
            self.faulty.asks.append(ask)
        return ask

    def _send(self, body: bytes, act: Act) -> None:
        step = len(body) if act.rate is None else max(1, int(act.rate / 20))
        for at in range(0, len(body), step or 1):
            with contextlib.suppress(OSError):
                self.wfile.write(body[at : at + step])
            with self.faulty.lock:
                self.faulty.sent_bytes += len(body[at : at + step])
            if act.rate is not None and self.faulty.over.wait(0.05):
                break
        if act.ending:
            self.close_connection = True
        if act.ending == "hold":
            self.faulty.held.set()
            self.faulty.over.wait(30)
        if act.ending == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that the client closes is what many of these tests are about."""

    def shutdown_request(self, request: object) -> None:
        """Close at once, so that a reset stays one."""
        self.close_request(request)  # type: ignore[arg-type]


@contextlib.contextmanager
def serving(faulty: Faulty, *, tls: bool = False) -> Iterator[Faulty]:
    """Run it on a free port."""
    handler = type("Handler", (_Handler,), {"faulty": faulty})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        faulty.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/m"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield faulty
        finally:
            faulty.over.set()
            server.shutdown()
            thread.join()


@dataclass
class Source:
    """A source whose address may be made anew."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    renewed: list[str] = field(default_factory=list)
    """Addresses that are still to be had."""
    address: str = "http://somewhere/m"
    renewals: int = 0

    def request(self) -> Request:
        """As it is now."""
        return Request(self.url, self.headers)

    def renew(self) -> bool:
        """The next address, where there is one."""
        self.renewals += 1
        if not self.renewed:
            return False
        self.url = self.renewed.pop(0)
        return True


@dataclass
class Road:
    """Transfers into a landing of their own."""

    folder: Path
    flow: Flow = field(init=False)
    counted: list[int] = field(default_factory=list)
    limits: Limits = HASTY
    budget: Budget = field(default_factory=Budget)
    resumed_bytes: int = 0

    def __post_init__(self) -> None:
        self.flow = Flow(self.counted.append)

    def bring(
        self, source: Source | str, size: int, *, connections: int | None = 4, keep: bool = False
    ) -> bytes:
        """The file, as it would be published. A failure leaves what has come where `keep` says so."""
        source = Source(source) if isinstance(source, str) else source
        landing = open_landing(self.folder / "partial", size, stop=self.flow.check)
        self.resumed_bytes = landing.resumed_bytes
        try:
            pull(
                source,
                size,
                landing,
                flow=self.flow,
                connections=connections,
                limits=self.limits,
                budget=self.budget,
            )
            digest = landing.digest(self.flow.check)
            landing.publish(self.folder / "final", mode=0o644)
        finally:
            landing.close(keep=keep)
        data = (self.folder / "final").read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        return data


@pytest.fixture(scope="session")
def matter() -> bytes:
    """A file of six parts, the last of them short."""
    return random.Random(6).randbytes((5 << 20) + 4097)


@pytest.fixture
def faulty(matter: bytes) -> Iterator[Faulty]:
    """A server that gives what is asked for, until a test sets its `act`."""
    with serving(Faulty(matter)) as running:
        yield running


@pytest.fixture
def faulty_tls(matter: bytes) -> Iterator[Faulty]:
    """The same with TLS, by a certificate that nobody trusts."""
    with serving(Faulty(matter), tls=True) as running:
        yield running


@pytest.fixture
def other_faulty(matter: bytes) -> Iterator[Faulty]:
    """A second server, on another port: another host to every client."""
    with serving(Faulty(matter)) as running:
        yield running


@pytest.fixture
def act() -> type[Act]:
    """What a server may do."""
    return Act


@pytest.fixture
def source() -> type[Source]:
    """Makes sources."""
    return Source


@pytest.fixture
def road(tmp_path: Path) -> Road:
    """A way into an empty folder."""
    return Road(tmp_path)


@pytest.fixture
def tls_certificate() -> Path:
    """What a client would have to trust."""
    return TLS / "certificate.pem"


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """No thread of the engine outlives its transfer."""
    yield
    left = [each for each in threading.enumerate() if each.name == "part"]
    assert left == []
