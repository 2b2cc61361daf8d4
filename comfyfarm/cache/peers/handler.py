"""The answers to one connection: whole blobs, read-only, by their SHA-256 and by nothing else.

A request's path is matched, never joined: no path reaches a folder, a file on its way, or anything outside.
"""

import json
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any, BinaryIO

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.peers.coming import coming, is_fetching
from comfyfarm.cache.peers.counts import Counts
from comfyfarm.cache.peers.protocol import BUSY, COMING, MOVED, PEER_ID, is_shown, sha256_of
from comfyfarm.cache.peers.ranges import is_match, wanted_bytes

_log = logging.getLogger(__name__)

SILENT_S = 30.0
"""A connection that neither sends nor takes a byte for so long is closed."""


@dataclass(frozen=True)
class ServedCache:
    """What a server gives, and to whom."""

    blobs: BlobStore
    own_id: str
    token: str | None = field(repr=False)
    counts: Counts = field(default_factory=Counts)
    more_metrics: Callable[[], str] = str
    """Lines about the cache itself, for `/metrics`; may raise `OSError`."""


class PeerHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; every other method is refused by the class above."""

    protocol_version = "HTTP/1.1"
    server_version = "comfyfarm"
    sys_version = ""
    timeout = SILENT_S
    disable_nagle_algorithm = True

    def __init__(self, request: Any, client: Any, server: BaseServer, *, served: ServedCache) -> None:
        self._served = served
        super().__init__(request, client, server)  # which answers, until the connection ends

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: whatever a client sends may hold a secret."""

    def send_response(self, code: int, message: str | None = None) -> None:
        """Every answer, those of the class above too, is counted and says who answers."""
        self._served.counts.answered(code)
        super().send_response(code, message)
        self.send_header(PEER_ID, self._served.own_id)

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer one request."""
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # its body stays unread
        token, sha256 = self._served.token, sha256_of(self.path)
        if token is not None and not is_shown(token, self.headers.get("Authorization")):
            self._say(HTTPStatus.UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"})
        elif sha256 is not None:
            self._blob(sha256)
        elif self.path == "/whoami":
            self._say(HTTPStatus.OK, json.dumps({"id": self._served.own_id}), kind="application/json")
        elif self.path == "/metrics":
            self._say(HTTPStatus.OK, self._metrics(), kind="text/plain; version=0.0.4; charset=utf-8")
        else:
            self._say(HTTPStatus.NOT_FOUND)

    def _metrics(self) -> str:
        own = self._served.counts.text()
        try:
            return own + self._served.more_metrics()
        except OSError as exc:
            _log.warning("%s: no figures of the cache: %s", self._served.blobs.root, exc.strerror)
            return own

    def _blob(self, sha256: str) -> None:
        file = _open_blob(self._served.blobs, sha256)
        found = None if file else coming(self._served.blobs, sha256)
        # It may have become whole between the two looks.
        file = file or (None if found else _open_blob(self._served.blobs, sha256))
        if file is not None:
            with file:
                self._give(file, os.fstat(file.fileno()).st_size, f'"{sha256}"')
        elif found is not None:
            far = {COMING: str(found.durable_bytes), MOVED: str(found.moved_ns), "Retry-After": "1"}
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, headers=far)
        else:
            self._say(HTTPStatus.NOT_FOUND, headers={BUSY: "1"} if is_fetching(self._served.blobs) else {})

    def _give(self, file: BinaryIO, size: int, etag: str) -> None:
        if not is_match(self.headers.get("If-Match"), etag):
            self._say(HTTPStatus.PRECONDITION_FAILED, headers={"ETag": etag})
            return
        # Ranges are defined for GET alone; with another tag in If-Range the whole file is wanted.
        is_ranged = self.command == "GET" and self.headers.get("If-Range", etag) == etag
        wanted = wanted_bytes(self.headers.get("Range"), size) if is_ranged else None
        if wanted is not None and not wanted:
            self._say(
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers={"Content-Range": f"bytes */{size}"}
            )
            return
        headers = {"ETag": etag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        if wanted is not None:
            headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
        self._head(HTTPStatus.OK if wanted is None else HTTPStatus.PARTIAL_CONTENT, headers,
                   length=size if wanted is None else len(wanted))  # fmt: skip
        if self.command == "GET":
            self._send(file, range(size) if wanted is None else wanted)

    def _send(self, file: BinaryIO, wanted: range) -> None:
        if not wanted:
            return
        file.seek(wanted.start)
        try:
            # From the page cache to the socket: no byte passes through this process.
            self.connection.sendfile(file, wanted.start, len(wanted))
        finally:
            sent = file.tell() - wanted.start
            self._served.counts.sent(sent)
            self.close_connection = self.close_connection or sent != len(wanted)

    def _say(
        self, status: HTTPStatus, text: str = "", *, kind: str = "text/plain", headers: Mapping[str, str] = {}
    ) -> None:
        body = text.encode()
        self._head(status, {"Content-Type": kind, **headers}, length=len(body))
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, headers: Mapping[str, str], *, length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()


def _open_blob(blobs: BlobStore, sha256: str) -> BinaryIO | None:
    """The blob, open: it can be read to its end even when it is evicted meanwhile."""
    try:
        fd = os.open(blobs.path(sha256), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb", buffering=0)
    os.close(fd)
    return None
