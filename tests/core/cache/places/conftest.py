"""A small S3 server for what a real one cannot be made to do: refuse headers, forget checksums, break."""

import base64
import hashlib
import itertools
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import SecretStr

from comfyfarm.cache.places.place import S3Access

_OPERATIONS = ("uploads", "partNumber", "uploadId", "list-type")
_Reply = tuple[int, bytes, dict[str, str]]
SECRET = "s3cr3t-of-the-odd-store"


@dataclass
class OddStore:
    """A bucket `b`, and what is peculiar about its server; requests are (method, key, operation)."""

    checksums: str = "say"
    """`say` them as S3 does, `ignore` the headers, or `refuse` them with 501, as R2 does, or with 400."""
    conditions: str = "honour"
    """Or `ignore`, or `refuse`."""
    spoils: bool = False
    """Keeps other bytes than came."""
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, operation, what goes wrong, each once: `503`, `503 <wait>`, `reset`, `lost`, `cut`, `late`."""
    objects: dict[str, bytes] = field(default_factory=dict)
    about: dict[str, dict[str, str]] = field(default_factory=dict)
    """Headers that an object answers with."""
    uploads: dict[str, tuple[str, dict[int, bytes], bool]] = field(default_factory=dict)
    """By id: key, parts, and whether it has checksums."""
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    address: str = ""
    wrong: list[str] = field(default_factory=list)
    """What a strict server would not take."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def access(self) -> S3Access:
        return S3Access(endpoint=self.address, access_key="key", secret=SecretStr(SECRET))

    def count(self, method: str, operation: str = "") -> int:
        """How many such requests came."""
        return sum(one[0] == method and one[2] == operation for one in self.requests)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: OddStore

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        key = unquote(parts.path).removeprefix("/b").removeprefix("/")
        operation = next(
            (name for name in ("uploads", "partNumber", "uploadId", "list-type") if name in query), ""
        )
        with self.store.lock:
            self.store.requests.append((self.command, key, operation))
            fault = self._fault(operation)
        if fault == "reset":
            self._reset()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = fault or self._check(body)
        status, wait, code = (*fault.split(" "), "", "", "")[:3]
        if status.isdigit():
            code = code or {"503": "SlowDown", "403": "AccessDenied"}.get(status, "InvalidRequest")
            self._refuse(int(status), code, {"Retry-After": wait} if wait else {})
        elif fault == "late":
            self._answer(200, b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>")
        else:
            with self.store.lock:
                answer = self._do(key, query, operation, body)
            if fault == "lost":
                self._reset()
            elif fault == "cut":
                self._answer(*answer, cut=True)
            else:
                self._answer(*answer)

    def _fault(self, operation: str) -> str:
        for one in self.store.faults:
            if one[:2] == (self.command, operation):
                self.store.faults.remove(one)
                return one[2]
        return ""

    def _check(self, body: bytes) -> str:
        said = self.headers.get("x-amz-content-sha256")
        if not self.headers.get("Authorization", "").startswith("AWS4-HMAC-SHA256 Credential=key/"):
            self.store.wrong.append(f"{self.command} {self.path}: not signed")
        is_right = said in {hashlib.sha256(body).hexdigest(), "UNSIGNED-PAYLOAD"}
        return "" if is_right else "400 0 XAmzContentSHA256Mismatch"

    def _do(self, key: str, query: dict[str, str], operation: str, body: bytes) -> _Reply:
        store, has = self.store, any(name.lower().startswith("x-amz-checksum") for name in self.headers)
        condition = self.headers.get("If-None-Match")
        if has and store.checksums == "refuse":
            return _error(501, "NotImplemented", "Header x-amz-checksum-sha256 is not implemented")
        if has and store.checksums == "refuse with 400":
            return _error(400, "InvalidArgument", "Unsupported header 'x-amz-checksum-sha256' received")
        if condition and store.conditions == "refuse":
            return _error(501, "NotImplemented", "Header if-none-match is not implemented")
        if condition and store.conditions == "honour" and key in store.objects:
            return _error(412, "PreconditionFailed", "")
        what = (self.command, operation)
        if what == ("PUT", ""):
            return self._keep(key, body, self.headers.get("x-amz-checksum-sha256", ""))
        if what == ("POST", "uploads"):
            upload_id = f"upload-{next(store.ids)}"
            store.uploads[upload_id] = (key, {}, has)
            return 200, f"<R><UploadId>{upload_id}</UploadId></R>".encode(), {}
        if what == ("GET", "uploads"):
            return 200, self._unfinished(query.get("prefix", "")), {}
        if operation in {"uploadId", "partNumber"}:
            return self._of_upload(query, body)
        return self._of_object(key, query)

    def _of_upload(self, query: dict[str, str], body: bytes) -> _Reply:
        store, upload_id = self.store, query["uploadId"]
        if upload_id not in store.uploads:
            return _error(404, "NoSuchUpload", "")
        key, parts, has = store.uploads[upload_id]
        if "partNumber" in query:
            parts[int(query["partNumber"])] = body
            return 200, b"", {"ETag": _etag(body)}
        if self.command == "GET":
            return 200, _listed(parts, has and store.checksums == "say"), {}
        del store.uploads[upload_id]
        if self.command == "DELETE":
            return 204, b"", {}
        sums = b"".join(hashlib.sha256(parts[number]).digest() for number in sorted(parts))
        said = f"{base64.b64encode(hashlib.sha256(sums).digest()).decode()}-{len(parts)}" if has else ""
        _, _, headers = self._keep(key, b"".join(parts[number] for number in sorted(parts)), said)
        told = headers.get("x-amz-checksum-sha256", "")
        return 200, f"<R><ChecksumSHA256>{told}</ChecksumSHA256></R>".encode(), {}

    def _keep(self, key: str, body: bytes, checksum: str) -> _Reply:
        store = self.store
        store.objects[key] = body[:-1] + bytes([body[-1] ^ 1]) if store.spoils else body
        says = {"x-amz-checksum-sha256": checksum} if store.checksums == "say" and checksum else {}
        claimed = self.headers.get("x-amz-meta-sha256")
        store.about[key] = says | ({"x-amz-meta-sha256": claimed} if claimed else {})
        return 200, b"", {"ETag": _etag(body)} | says

    def _of_object(self, key: str, query: dict[str, str]) -> _Reply:
        store = self.store
        if "list-type" in query:
            found = [name for name in store.objects if name.startswith(query.get("prefix", ""))]
            return 200, _contents({name: len(store.objects[name]) for name in found}), {}
        if self.command == "DELETE":
            store.objects.pop(key, None)
            return 204, b"", {}
        if key not in store.objects:
            return _error(404, "NoSuchKey", "")
        data, start = store.objects[key], int(self.headers.get("Range", "bytes=0-")[6:-1])
        return 206 if start else 200, data[start:], store.about.get(key, {})

    def _unfinished(self, prefix: str) -> bytes:
        found = "".join(
            f"<Upload><Key>{key}</Key><UploadId>{upload_id}</UploadId>"
            "<Initiated>2026-01-01T00:00:00Z</Initiated></Upload>"
            for upload_id, (key, _, _) in self.store.uploads.items()
            if key.startswith(prefix)
        )
        return f"<R xmlns='urn:x'><IsTruncated>false</IsTruncated>{found}</R>".encode()

    def _refuse(self, status: int, code: str, headers: dict[str, str]) -> None:
        body = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        self._answer(status, body, headers)

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = cut or self.close_connection

    def _reset(self) -> None:
        # Linger of zero: the close is a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


def _error(status: int, code: str, message: str) -> _Reply:
    return status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode(), {}


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _sha256(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def _listed(parts: dict[int, bytes], says: bool) -> bytes:
    found = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{_etag(body)}</ETag><Size>{len(body)}</Size>"
        + (
            f"<ChecksumSHA256>{base64.b64encode(hashlib.sha256(body).digest()).decode()}</ChecksumSHA256>"
            * says
        )
        + "</Part>"
        for number, body in parts.items()
    )
    return f"<R><IsTruncated>false</IsTruncated>{found}</R>".encode()


def _contents(sizes: dict[str, int]) -> bytes:
    found = "".join(
        f"<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        "<ETag>x</ETag><StorageClass>STANDARD</StorageClass></Contents>"
        for name, size in sizes.items()
    )
    head = "<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Name>b</Name>"
    return f"{head}<IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break in the middle: that is what is tested."""


@contextmanager
def _served(tls: ssl.SSLContext | None = None) -> Iterator[OddStore]:
    store = OddStore()
    handler = type("Handler", (_Handler,), {"store": store})
    with _Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        store.address = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield store
        server.shutdown()
        thread.join()
    assert store.wrong == []


@pytest.fixture
def odd() -> Iterator[OddStore]:
    """An odd S3 server, fresh for each test; what it was sent was signed."""
    with _served() as store:
        yield store


@pytest.fixture
def odd_tls(tmp_path: Path) -> Iterator[OddStore]:
    """The same over TLS, with a certificate of its own in `tmp_path/cert.pem`, which nobody trusts yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with _served(tls) as store:
        yield store
