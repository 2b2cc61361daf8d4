"""A server that fails as it is told, whichever tier it stands for, and what a whole hydration needs."""

import contextlib
import functools
import hashlib
import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from comfyfarm.cache import fetch as fetch_module
from comfyfarm.cache.blobs import BlobStore, blob_key
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cli import main

MIB = 1 << 20
QUICK = Limits(tick_s=0.05, tries=4, first_wait_s=0.005, most_wait_s=0.05)
"""Waits little before it tries again. On a busy machine nothing is taken for a stall: bytes are counted."""
HASTY = replace(QUICK, stall_s=0.5, silent_s=0.25, slow_window_s=0.3, tries=2)


@dataclass(frozen=True)
class ModelFile:
    """A pinned file with its bytes."""

    data: bytes = field(repr=False)
    sha256: str
    sources: tuple[str, ...] = ()
    folder: str = "checkpoints"
    path: str = "m.pt"

    @property
    def size(self) -> int:
        return len(self.data)

    def at(self, *sources: object) -> "ModelFile":
        """The same file with these sources."""
        return replace(self, sources=tuple(map(str, sources)))


@dataclass(frozen=True)
class Ask:
    """One GET of a file. `end` is not included."""

    nth: int
    path: str
    start: int
    end: int
    authorization: str | None
    busy: int
    """Requests that are being answered, this one among them."""


@dataclass(frozen=True)
class Act:
    """What to do instead of giving what was asked for."""

    status: int | None = None
    body: bytes | None = None
    kind: str = "application/octet-stream"
    sends: int | None = None
    """So many bytes of the body only."""
    ending: str = ""
    """Then `close`, `reset`, or `hold` until the test is over."""
    rate: float | None = None
    """Bytes a second."""
    is_whole: bool = False
    """Ignores the range."""
    etag: str = '"v1"'
    flips: int | None = None
    """The byte of the file at this offset is sent wrong."""


def as_asked(_ask: Ask) -> Act:
    """No fault."""
    return Act()


@dataclass
class Depot:
    """Gives a file at every path that ends with its SHA-256, and `texts` by their path."""

    files: dict[str, bytes] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    act: Callable[[Ask], Act] = as_asked
    url: str = ""
    asks: list[Ask] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    """Bytes of each file's bodies, by SHA-256."""
    busy: int = 0
    """Requests that are being answered."""
    most_busy: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    heard: threading.Condition = field(default_factory=threading.Condition)

    def add(self, *files: ModelFile) -> "Depot":
        """Give these as well."""
        self.files |= {file.sha256: file.data for file in files}
        return self

    def sent_bytes(self) -> int:
        """Of all files."""
        return sum(self.sent.values())

    def has_sent(self, count: int, *, within_s: float = 30.0) -> bool:
        """Wait until so many bytes have gone out."""
        with self.heard:
            return self.heard.wait_for(lambda: self.sent_bytes() >= count, within_s)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    depot: Depot

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self._head(200, len(self._file()[1]), {})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        sha256, data = self._file()
        if not data:
            text = self.depot.texts.get(path)
            self._head(404 if text is None else 200, len(text or b""), {})
            self.wfile.write(text or b"")
            return
        wanted = self.headers.get("Range")
        ask = self._ask(wanted, len(data))
        act = self.depot.act(ask)
        start, end = (0, len(data)) if act.is_whole else (ask.start, ask.end)
        body = bytearray(data[start:end]) if act.body is None else bytearray(act.body)
        if act.flips is not None and start <= act.flips < end:
            body[act.flips - start] ^= 1
        headers = {"Content-Type": act.kind}
        if act.etag:
            headers["ETag"] = act.etag
        is_part = wanted is not None and not act.is_whole and act.status is None
        if is_part:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        self._head(act.status or (206 if is_part else 200), len(body), headers)
        self._send(sha256, bytes(body[: act.sends]), act)

    def _file(self) -> tuple[str, bytes]:
        sha256 = self.path.partition("?")[0].rpartition("/")[2]
        return sha256, self.depot.files.get(sha256, b"")

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("X-Comfyfarm-Peer", "f" * 32)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _ask(self, wanted: str | None, size: int) -> Ask:
        first, _, last = (wanted or "").removeprefix("bytes=").partition("-")
        start, end = int(first or 0), min(int(last) + 1, size) if last else size
        depot = self.depot
        with depot.lock:
            depot.busy += 1
            depot.most_busy = max(depot.most_busy, depot.busy)
            shown = self.headers.get("Authorization")
            ask = Ask(len(depot.asks) + 1, self.path, start, end, shown, depot.busy)
            depot.asks.append(ask)
        return ask

    def _send(self, sha256: str, body: bytes, act: Act) -> None:
        step = 64 << 10 if act.rate is None else max(1, int(act.rate / 50))
        is_over = False
        for at in range(0, len(body) or 1, step):
            if not is_over and at + step >= len(body):
                # Before the last byte: who has it may ask again at once.
                is_over = True
                with self.depot.lock:
                    self.depot.busy -= 1
            self.wfile.write(body[at : at + step])
            with self.depot.heard:
                self.depot.sent[sha256] += len(body[at : at + step])
                self.depot.heard.notify_all()
            if act.rate is not None and self.depot.over.wait(0.02):
                break
        self.close_connection = bool(act.ending) or self.close_connection
        if act.ending == "hold":
            self.depot.over.wait(30)
        if act.ending == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away in the middle: that is what is tested."""

    def shutdown_request(self, request: object) -> None:
        """Close at once, so that a reset stays one."""
        self.close_request(request)  # type: ignore[arg-type]


@contextlib.contextmanager
def serving(depot: Depot) -> Iterator[Depot]:
    """Run it on a free port."""
    handler = type("Handler", (_Handler,), {"depot": depot})
    with _Server(("127.0.0.1", 0), handler) as server:
        depot.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield depot
        finally:
            depot.over.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def make_depot() -> Iterator[Callable[..., Depot]]:
    """Start depots that have these files."""
    with ExitStack() as stack:
        yield lambda *files: stack.enter_context(serving(Depot())).add(*files)


@pytest.fixture(scope="session")
def make_file() -> Callable[..., ModelFile]:
    """A file of random bytes, by a number."""

    @functools.cache
    def make(seed: int, size: int = 100_000) -> ModelFile:
        data = random.Random(seed).randbytes(size)
        return ModelFile(data, hashlib.sha256(data).hexdigest(), path=f"m{seed}.pt")

    return make


@pytest.fixture(scope="session")
def file(make_file: Callable[..., ModelFile]) -> ModelFile:
    """Four requests and a bit."""
    return make_file(1, 4 * MIB + 4097)


@pytest.fixture(scope="session")
def large(make_file: Callable[..., ModelFile]) -> ModelFile:
    """Of three parts by the mirror's count, the last of them short."""
    return make_file(2, 33 * MIB + 11)


@pytest.fixture
def act() -> type[Act]:
    """What a depot may do."""
    return Act


@pytest.fixture
def keeper(blobs: BlobStore) -> Keeper:
    """Without bounds."""
    return Keeper(blobs, Bounds(None, 0))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patched because servers that are down for good would cost each test up to a minute."""
    monkeypatch.setattr(fetch_module, "pull", functools.partial(pull, limits=QUICK))


@pytest.fixture
def be_hasty(quick: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on half a second is a stall. Patched because a real one takes 15 s."""
    hasty = functools.partial(pull, limits=HASTY)
    return lambda: monkeypatch.setattr(fetch_module, "pull", hasty)


@dataclass
class Watcher:
    """Looks for files that can be seen, all the time, and reads each: none may ever be wrong."""

    root: Path
    wrong: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.wait(0.004):
            for path in (self.root / "sha256").glob("??/*"):
                with contextlib.suppress(FileNotFoundError):
                    self.look(path)

    def look(self, path: Path) -> None:
        mark = f"{path.name} {path.stat().st_ino}"
        if mark not in self.seen:
            self.seen.add(mark)
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
                self.wrong.append(path.name)

    def end(self) -> None:
        self._over.set()


@pytest.fixture
def watcher(blobs: BlobStore) -> Iterator[Watcher]:
    """Watches the cache during the test, and lets it fail in the end."""
    watcher = Watcher(blobs.root)
    thread = threading.Thread(target=watcher.run)
    thread.start()
    yield watcher
    watcher.end()
    thread.join()
    assert watcher.wrong == []


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """No thread of the engine outlives its transfer."""
    yield
    left = [each for each in threading.enumerate() if each.name == "part"]
    for each in left:
        each.join(1.0)
    assert [each for each in left if each.is_alive()] == []


@pytest.fixture
def blob_path() -> Callable[[ModelFile], str]:
    """Where a file lies below an address."""
    return lambda file: f"/{blob_key(file.sha256)}"


@pytest.fixture
def lock_of(tmp_path: Path) -> Callable[..., Path]:
    """A lock of these files."""

    def write(*files: ModelFile) -> Path:
        models = [
            {"folder": each.folder, "path": each.path, "sha256": each.sha256, "size": each.size,
             "sources": list(each.sources)}
            for each in files
        ]  # fmt: skip
        lock = tmp_path / "film.lock"
        lock.write_text(json.dumps({"version": 1, "models": models}))
        return lock

    return write


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Call `comfyfarm` with these words, in this process; the cache is `blobs`."""
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMFYFARM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COMFYFARM_CACHE_FREE_GB", "0")
    return lambda *words: CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
