"""Buckets and web servers as places: what is read and listed through obstore, errors said in plain words.

obstore resumes a broken body at its last good byte and repeats 5xx, resets and stalls by itself; its messages
hold whole addresses, signatures included, so they never leave this module.
"""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from comfyfarm.addresses import mask
from comfyfarm.cache.places.faults import describe, library_errors
from comfyfarm.cache.places.place import Listed, ObjectPlace
from comfyfarm.cache.places.request import Addressed
from comfyfarm.errors import StoreError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, HTTPStore, RetryConfig, S3Store

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 15
"""A read that brings nothing for so long is a stall, and is resumed elsewhere."""
PART_TIMEOUT_S = 300
WHOLE_TIMEOUT_S = 24 * 3600
"""For a server that ignores ranges: one request brings the whole file; a stall still ends after 15 s."""
MAX_RETRIES = 8
RETRY_WITHIN_S = 120

Store: TypeAlias = "S3Store | HTTPStore"
MakeStore = Callable[["ClientConfig", "RetryConfig"], "Store"]


class RemotePlace(ObjectPlace):
    """Objects under a prefix of one store."""

    def __init__(self, address: str, prefix: str, *, make_store: MakeStore, plain_http: bool) -> None:
        self.address = mask(address)
        self._prefix = prefix.strip("/")
        self._make_store = make_store
        self._plain_http = plain_http
        self._stores: dict[int, Store] = {}

    @abstractmethod
    def addressed(self, name: str = "") -> Addressed:
        """A file as an address that any HTTP engine can ask for; the place itself for the empty name."""

    def key(self, name: str) -> str:
        """The object's key in the store; the prefix itself for the empty name."""
        return "/".join(part for part in (self._prefix, name) if part)

    def reader(self, *, timeout_s: int = PART_TIMEOUT_S) -> Store:
        """A store for reads; one request with its body takes `timeout_s` seconds at most."""
        if timeout_s not in self._stores:
            options = _client_options(timeout_s, plain_http=self._plain_http)
            self._stores[timeout_s] = self._make_store(options, _retries())
        return self._stores[timeout_s]

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

    async def list(self, prefix: str = "") -> AsyncIterator[Listed]:
        """Objects whose names begin with `prefix`, which is empty or ends with `/`; in no order."""
        root = f"{self._prefix}/" if self._prefix else ""
        with self.errors(prefix):
            # Names are cut at slashes by the library, hence no prefix that ends within a word.
            async for page in self.reader().list(root + prefix or None):
                for meta in page:
                    name = meta["path"].removeprefix(root)
                    yield Listed(name, meta["size"], meta["last_modified"])

    @contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Turn the library's errors into `StoreError`, without addresses or signatures."""
        try:
            yield
        except library_errors() as exc:
            # `from None`: the library's text holds signed addresses, and a traceback would print it.
            raise StoreError(f"{self.shown(name)}: {describe(exc)}") from None

    def shown(self, name: str) -> str:
        """The object's address as it may be printed."""
        return f"{self.address.rstrip('/')}/{name}" if name else self.address


def _client_options(timeout_s: int, *, plain_http: bool) -> "ClientConfig":
    return {
        "allow_http": plain_http,
        "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        "read_timeout": f"{READ_TIMEOUT_S}s",
        "timeout": f"{timeout_s}s",
        "user_agent": "comfyfarm",
    }


def _retries() -> "RetryConfig":
    backoff = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=8), "base": 2}
    return {
        "max_retries": MAX_RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_WITHIN_S),
        "backoff": backoff,  # type: ignore[typeddict-item]
    }
