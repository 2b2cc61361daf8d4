"""Mirrors of both kinds, and a web server of fixed answers."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from comfyfarm.cache.places.objects import S3Access, open_place
from comfyfarm.cache.places.place import ObjectPlace
from infra.s3_server import S3Server

OpenMirror = Callable[[], ObjectPlace]


@pytest.fixture(params=["folder", "bucket"])
def open_mirror(request: pytest.FixtureRequest, s3: S3Server, access: S3Access, tmp_path: Path) -> OpenMirror:
    """Opens the same empty mirror, anew at each call: once a folder, once a bucket."""
    if request.param == "folder":
        return lambda: open_place(str(tmp_path / "mirror"))
    return lambda: open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access)


@pytest.fixture
def mirror(open_mirror: OpenMirror) -> ObjectPlace:
    """An empty mirror: once a folder, once a bucket."""
    return open_mirror()


@pytest.fixture
def bucket(s3: S3Server, access: S3Access, tmp_path: Path) -> ObjectPlace:
    """An empty mirror in a bucket."""
    return open_place(f"s3://{s3.bucket}/{tmp_path.name}", access=access)


@pytest.fixture
def file(content: bytes, tmp_path: Path) -> Path:
    """A model file of three parts."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return path


@dataclass
class Answers:
    """A web server that gives a fixed answer for each path."""

    address: str = ""
    by_path: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    """Headers of every request, lower-case, `path` among them."""

    def give(self, path: str, status: int, body: bytes = b"", **headers: str) -> str:
        """From now on; returns the address."""
        self.by_path[path] = (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
            body,
        )
        return self.address + path


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: Answers

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.answers.asked.append({"path": self.path} | {k.lower(): v for k, v in self.headers.items()})
        status, headers, body = self.answers.by_path.get(path, (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Transfer-Encoding" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def answers() -> Iterator[Answers]:
    """A web server of fixed answers, fresh for each test."""
    state = Answers()
    handler = type("Handler", (_Handler,), {"answers": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join()
