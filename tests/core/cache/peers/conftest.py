"""Hosts with a cache and a server each, on real sockets; a mirror that counts; a raw look at an answer."""

import contextlib
import hashlib
import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from comfyfarm.cache.blobs import BlobStore, blob_key
from comfyfarm.cache.peers.identity import cache_id
from comfyfarm.cache.peers.ranges import wanted_bytes
from comfyfarm.cache.peers.server import PeerServer, open_server, serving
from comfyfarm.cache.peers.tier import PeerTier

_OWN = "the host's own"


@dataclass(frozen=True)
class ModelFile:
    """A pinned file with its bytes."""

    data: bytes = field(repr=False)
    sources: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass
class Host:
    """A cache that is served."""

    blobs: BlobStore
    server: PeerServer
    url: str
    token: str | None

    @property
    def own_id(self) -> str:
        return cache_id(self.blobs.root)

    def put(self, file: ModelFile, *, data: bytes | None = None) -> Path:
        """Lay a file into the cache; `data`: other bytes than it should have."""
        path = self.blobs.path(file.sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data if data is None else data)
        return path

    def tier(self, *urls: str) -> PeerTier:
        """This host's peers."""
        return PeerTier(urls, self.token, self.own_id)

    def ask(self, path: str, *, method: str = "GET", token: str | None = _OWN, **headers: str) -> "Seen":
        """Ask this host's server; `_` in a header's name is `-`."""
        shown = self.token if token is _OWN else token
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if shown is not None:
            sent["Authorization"] = f"Bearer {shown}"
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=10)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return Seen(response.status, response.headers, response.read())


@dataclass(frozen=True)
class Seen:
    """An answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Start hosts."""
    with ExitStack() as stack:
        count = iter(range(100))

        def make(*, token: str | None = None, most_connections: int = 128, port: int = 0) -> Host:
            blobs = BlobStore(tmp_path / f"host-{next(count)}")
            server = open_server(
                blobs, host="127.0.0.1", port=port, token=token, most_connections=most_connections
            )
            return Host(blobs, server, stack.enter_context(serving(server)), token)

        yield make


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    """One host, with a token."""
    return make_host(token="let-me-in")


@pytest.fixture(scope="session")
def make_file() -> Callable[..., ModelFile]:
    """A file of random bytes."""
    return lambda seed, size=100_000: ModelFile(random.Random(seed).randbytes(size))


@pytest.fixture
def file(make_file: Callable[..., ModelFile]) -> ModelFile:
    """A file of 100 kB."""
    return make_file(1)


@dataclass
class CountedMirror:
    """Gives each file slowly, and counts how often."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)
    """Bytes of each file."""
    pieces: int = 8
    pause_s: float = 0.05
    gone: threading.Event = field(default_factory=threading.Event)

    def address(self, file: ModelFile) -> str:
        """Where the file is, from now on."""
        path = f"/{blob_key(file.sha256)}"
        self.files[path] = file.data
        return self.url + path

    def times(self, file: ModelFile) -> float:
        """How often the whole file was given."""
        return self.given[f"/{blob_key(file.sha256)}"] / file.size


class _MirrorHandler(BaseHTTPRequestHandler):
    mirror: CountedMirror

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        data = self.mirror.files[self.path]
        wanted = wanted_bytes(self.headers["Range"], len(data)) or range(len(data))
        self.send_response(206)
        self.send_header("Content-Length", str(len(wanted)))
        self.send_header("Content-Range", f"bytes {wanted.start}-{wanted.stop - 1}/{len(data)}")
        self.end_headers()
        step = len(data) // self.mirror.pieces + 1
        for start in range(wanted.start, wanted.stop, step):
            self.mirror.gone.wait(self.mirror.pause_s)
            piece = data[start : min(start + step, wanted.stop)]
            self.wfile.write(piece)
            self.mirror.given[self.path] += len(piece)


@pytest.fixture
def mirror() -> Iterator[CountedMirror]:
    """A mirror, fresh for each test."""
    state = CountedMirror()
    handler = type("Handler", (_MirrorHandler,), {"mirror": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield state
        state.gone.set()
        server.shutdown()
        thread.join()
