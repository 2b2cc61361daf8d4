"""A small web server with faults on request, a real S3 server, and a model file of three parts."""

import contextlib
import hashlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.places import remote
from comfyfarm.cache.places.place import S3Access
from infra.s3_server import S3Server, s3_server


@dataclass(frozen=True)
class Model:
    """A pinned file, as the cache sees one."""

    sha256: str
    size: int
    sources: tuple[str, ...] = ()
    folder: str = "checkpoints"
    path: str = "sd/model.safetensors"


@dataclass
class WebServer:
    """Serves `files` by path with ranges; `faults` names what goes wrong with a path."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and range of every GET."""
    seen: Counter[str] = field(default_factory=Counter)
    authorization: str | None = None
    held: threading.Event = field(default_factory=threading.Event)
    """Set once a `hold` fault has sent half of a body."""
    release: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def url(self, path: str, fault: str | None = None) -> str:
        """Address of a path, with a fault from now on."""
        if fault:
            self.faults[path] = fault
        return self.address + path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: WebServer

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        web, path = self.web, self.path.partition("?")[0]
        web.requests.append((path, self.headers.get("Range")))
        web.authorization = self.headers.get("Authorization")
        web.seen[path] += 1
        fault, data = web.faults.get(path, ""), web.files.get(path)
        name, _, number = fault.partition(" ")
        if data is None:
            self._answer(404, b"")
        elif name == "503" and web.seen[path] <= int(number or 10**6):
            self._answer(503, b"")
        elif name == "html":
            self._answer(200, b"<html>Log in</html>", kind="text/html")
        elif name == "short":
            self._ranged(data[:-1], web.seen[path], name)
        else:
            self._ranged(data, web.seen[path], name)

    def _ranged(self, data: bytes, nth: int, fault: str) -> None:
        wanted = self.headers.get("Range") if fault != "norange" else None
        start, end = 0, len(data)
        if wanted:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1, len(data)) if last else len(data)
        etag = f'"v{nth}"' if fault == "changing" else '"v1"'
        if self.headers.get("If-Match") not in {None, etag}:
            self._answer(412, b"")
            return
        headers = {"ETag": etag}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        body = bytearray(data[start:end])
        if fault == "wrong":
            body[len(body) // 2] ^= 1
        self._answer(206 if wanted else 200, bytes(body), headers=headers, cut=self._cut(fault, nth))

    def _cut(self, fault: str, nth: int) -> str:
        once = {"truncate-once": "close", "reset-once": "reset", "stall-once": "hold", "hold": "hold"}
        return "close" if fault == "truncate" else once.get(fault, "") if nth == 2 else ""

    def _answer(
        self,
        status: int,
        body: bytes,
        *,
        kind: str = "application/octet-stream",
        headers: dict[str, str] | None = None,
        cut: str = "",
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut == "hold":
            self.web.held.set()
            self.web.release.wait(30)
        if cut == "reset":
            # Linger of zero: the close is a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = bool(cut) or self.close_connection


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away in the middle: that is what is tested."""


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A web server, fresh for each test."""
    state = WebServer()
    handler = type("Handler", (_Handler,), {"web": state})
    with _Server(("127.0.0.1", 0), handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield state
        state.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def content() -> bytes:
    """Three parts and a bit: 33 MiB that look like noise."""
    block = random.Random(7).randbytes(1 << 20)
    return b"".join(bytes([n]) + block[1:] for n in range(33)) + b"tail"


@pytest.fixture(scope="session")
def model(content: bytes) -> Model:
    """The pin of `content`."""
    return Model(hashlib.sha256(content).hexdigest(), len(content))


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    """An empty cache."""
    return BlobStore(tmp_path / "cache")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    # Patched because a server that is down for good would cost each test the full 6 retries.
    monkeypatch.setattr(remote, "MAX_RETRIES", 2)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, one for all tests of the cache."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(s3_server(tmp_path_factory.mktemp("s3")))


@pytest.fixture
def access(s3: S3Server) -> S3Access:
    """Credentials for the S3 server."""
    return S3Access(endpoint=s3.endpoint, access_key=s3.access_key, secret=SecretStr(s3.secret_key))
