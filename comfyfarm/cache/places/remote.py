"""Buckets and web servers as places, through obstore, with its errors said in a few plain words.

obstore resumes a broken body at its last good byte and repeats 5xx, resets and stalls by itself; its messages
hold whole addresses, signatures included, so they never leave this module.
"""

import base64
import contextlib
import logging
import mimetypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import HTTPStore, S3Store

from comfyfarm.addresses import mask
from comfyfarm.cache.places.counted import counted
from comfyfarm.cache.places.faults import describe
from comfyfarm.cache.places.place import (
    Guard,
    ObjectPlace,
    PutFile,
    S3Access,
    read_s3_access,
    s3_endpoint,
    s3_region,
)
from comfyfarm.errors import StoreError, UsageError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 15
"""A read that brings nothing for so long is a stall, and is resumed elsewhere."""
PART_TIMEOUT_S = 300
WHOLE_TIMEOUT_S = 24 * 3600
"""For a server that ignores ranges: one request brings the whole file; a stall still ends after 15 s."""
MAX_RETRIES = 6
RETRY_WITHIN_S = 120
SMALL_BYTES = 16 << 20
"""Up to this size a file goes up in one request, conditional where that is asked for."""
UPLOAD_PART_BYTES = 8 << 20
UPLOAD_PARTS_IN_FLIGHT = 6
MAX_UPLOAD_PARTS = 9000
"""S3 takes 10,000 parts at most."""

Store = S3Store | HTTPStore
_MakeStore = Callable[["ClientConfig", "RetryConfig"], Store]


class RemotePlace(ObjectPlace):
    """Objects under a prefix of one store."""

    def __init__(
        self, address: str, prefix: str, *, make_store: _MakeStore, read_only: bool, plain_http: bool
    ) -> None:
        self.address = mask(address)
        self._prefix = prefix.strip("/")
        self._make_store = make_store
        self._read_only = read_only
        self._plain_http = plain_http
        self._stores: dict[tuple[int, int | None], Store] = {}

    def key(self, name: str) -> str:
        """The object's key in the store; the prefix itself for the empty name."""
        return "/".join(part for part in (self._prefix, name) if part)

    def reader(self, *, timeout_s: int = PART_TIMEOUT_S) -> Store:
        """A store for reads; one request with its body takes `timeout_s` seconds at most."""
        return self._store(timeout_s, READ_TIMEOUT_S)

    def writer(self) -> Store:
        """A store for writes: while a body goes up nothing is read, so only the whole is timed."""
        return self._store(PART_TIMEOUT_S, None)

    async def size_of(self, name: str) -> int | None:
        """Size in bytes of an object; None when there is none."""
        with self.errors(name):
            try:
                return (await self.reader().head_async(self.key(name)))["size"]
            except FileNotFoundError:
                return None

    async def read_bytes(self, name: str) -> bytes | None:
        """A small object; None when there is none."""
        with self.errors(name):
            try:
                return bytes(await (await self.reader().get_async(self.key(name))).bytes_async())
            except FileNotFoundError:
                return None

    async def put_bytes(self, name: str, data: bytes) -> None:
        """Write a small object, replacing what is there."""
        self._check_writable()
        with self.errors(name):
            await self.writer().put_async(self.key(name), data, attributes=_attributes(name))

    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Remove objects."""
        self._check_writable()
        for name in names:
            guard()
            with self.errors(name), contextlib.suppress(FileNotFoundError):
                await self.writer().delete_async(self.key(name))

    async def put_file(
        self,
        put: PutFile,
        *,
        mode: Literal["create", "overwrite"],
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Upload a file, in parts when it is large; the size of the server's copy is checked afterwards.

        Two uploads of one large file at once are one object in the end: only small ones are conditional.
        """
        self._check_writable()
        if mode == "create" and await self.size_of(put.name) == put.size:
            return False
        with self.errors(put.name), counted(put.file, on_bytes) as body:
            await self._upload(put, body, mode=mode)
        arrived = await self.size_of(put.name)
        if arrived != put.size:
            raise StoreError(f"{self.shown(put.name)}: {arrived} bytes arrived of {put.size}")
        return True

    async def _upload(
        self, put: PutFile, body: Path | BinaryIO, *, mode: Literal["create", "overwrite"]
    ) -> None:
        small = put.size <= SMALL_BYTES
        part_bytes = max(UPLOAD_PART_BYTES, -(-put.size // MAX_UPLOAD_PARTS))
        try:
            await self.writer().put_async(
                self.key(put.name),
                body,
                attributes=_attributes(put.name) | {"sha256": put.sha256},
                mode=mode if small else "overwrite",
                use_multipart=not small,
                chunk_size=part_bytes,
                max_concurrency=UPLOAD_PARTS_IN_FLIGHT,
            )
        except AlreadyExistsError:
            _log.info("%s: another upload was first", self.shown(put.name))

    @contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Turn the library's errors into `StoreError`, without addresses or signatures."""
        try:
            yield
        except (BaseError, OSError, ValueError) as exc:
            # `from None`: the library's text holds signed addresses, and a traceback would print it.
            raise StoreError(f"{self.shown(name)}: {describe(exc)}") from None

    def shown(self, name: str) -> str:
        """The object's address as it may be printed."""
        return f"{self.address.rstrip('/')}/{name}" if name else self.address

    def _store(self, timeout_s: int, read_timeout_s: int | None) -> Store:
        found = self._stores.get((timeout_s, read_timeout_s))
        if found is None:
            options = _client_options(timeout_s, read_timeout_s, plain_http=self._plain_http)
            found = self._make_store(options, _retries())
            self._stores[timeout_s, read_timeout_s] = found
        return found

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"{self.address}: a web server is only read; use a folder or s3://")


def open_bucket(address: str, *, access: S3Access | None = None) -> RemotePlace:
    """`s3://bucket/prefix`, as whom `access` says, else `AWS_*`, else the machine's own role.

    Raises:
        UsageError: the address names no bucket.
    """
    parts = urlsplit(address)
    if not parts.netloc:
        raise UsageError(f"{mask(address)}: no bucket is named; write s3://bucket/prefix")
    access = access or read_s3_access()
    config = _s3_config(access)
    # A provider rather than plain values: then nothing of the environment (a session token) mixes with them.
    provider = None if access is None else partial(_credential, access)

    def make(client: "ClientConfig", retry: "RetryConfig") -> Store:
        return S3Store(
            parts.netloc,
            config=config,
            client_options=client,
            retry_config=retry,
            credential_provider=provider,
        )

    # Not a URL path: S3 keys are plain text, `%`, `?` and `#` included.
    prefix = address.partition("://")[2].partition("/")[2]
    insecure = str(config.get("endpoint", "")).startswith("http://")
    return RemotePlace(address, prefix, make_store=make, read_only=False, plain_http=insecure)


def open_web(address: str) -> RemotePlace:
    """`http(s)://…`: a folder of a web server, or one file of it, with its query (a presigned address)."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    headers = _basic_authorization(parts.username, parts.password)
    plain = urlunsplit(parts._replace(netloc=host, fragment=""))

    def make(client: "ClientConfig", retry: "RetryConfig") -> Store:
        if headers:
            client["default_headers"] = headers
        return HTTPStore(plain, client_options=client, retry_config=retry)

    insecure = parts.scheme.lower() == "http"
    return RemotePlace(address, "", make_store=make, read_only=True, plain_http=insecure)


def _client_options(timeout_s: int, read_timeout_s: int | None, *, plain_http: bool) -> "ClientConfig":
    options: ClientConfig = {
        "allow_http": plain_http,
        "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        "timeout": f"{timeout_s}s",
        "user_agent": "comfyfarm",
    }
    if read_timeout_s is not None:
        options["read_timeout"] = f"{read_timeout_s}s"
    return options


def _retries() -> "RetryConfig":
    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=8), "base": 2}
    return {
        "max_retries": MAX_RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_WITHIN_S),
        "backoff": backoff,  # type: ignore[typeddict-item]
    }


def _s3_config(access: S3Access | None) -> "S3Config":
    endpoint = access.endpoint if access else s3_endpoint(os.environ)
    config: S3Config = {"region": access.region if access else s3_region(os.environ)}
    if endpoint:
        # Path style, which every store but AWS understands without DNS of its own.
        config["endpoint"] = endpoint
        config["virtual_hosted_style_request"] = False
    return config


def _credential(access: S3Access) -> "S3Credential":
    return {
        "access_key_id": access.access_key,
        "secret_access_key": access.secret.get_secret_value(),
        "token": access.session_token.get_secret_value() if access.session_token else None,
        "expires_at": None,
    }


def _basic_authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _attributes(name: str) -> dict[str, str]:
    kind = mimetypes.guess_type(name)[0]
    return {"Content-Type": kind} if kind else {}
