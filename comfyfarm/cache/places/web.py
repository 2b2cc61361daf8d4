"""A plain web server as a place: it is only read."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit, urlunsplit

from comfyfarm.cache.places.addressed import WebFile, below
from comfyfarm.cache.places.place import Guard, Listed, Mode, PutFile
from comfyfarm.cache.places.remote import RemotePlace, Store
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.cache.places.web_auth import auth_headers
from comfyfarm.errors import StoreError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig


class WebPlace(RemotePlace):
    """A folder of a web server, or one file of it, with its query (a presigned address)."""

    def __init__(self, address: str, headers: Mapping[str, str] | None = None) -> None:
        """`headers`: by default those that the environment knows for this address."""
        parts = urlsplit(address)
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
        self._headers = dict(auth_headers(address, os.environ) if headers is None else headers)

        def make(client: "ClientConfig", retry: "RetryConfig") -> Store:
            from obstore.store import HTTPStore

            if self._headers:
                client["default_headers"] = self._headers
            return HTTPStore(self._url, client_options=client, retry_config=retry)

        super().__init__(address, "", make_store=make, plain_http=parts.scheme.lower() == "http")

    def addressed(self, name: str = "") -> Addressed:
        """A file by its own address, and whatever header lets us in."""
        return WebFile(self.shown(name), below(self._url, name), self._headers)

    async def put_bytes(self, name: str, data: bytes) -> None:
        """Refused."""
        self._refuse(name, data)

    async def put_file(
        self,
        put: PutFile,
        *,
        mode: Mode,
        part_sha256: tuple[str, ...] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Refused."""
        self._refuse(put, mode, part_sha256, on_bytes)

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Refused."""
        self._refuse(files, last, guard)

    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Refused."""
        self._refuse(names, guard)

    async def list(self, prefix: str = "") -> AsyncIterator[Listed]:
        """Refused: no web server says what it has."""
        del prefix
        for never in self._nothing():
            yield never

    def _nothing(self) -> Iterable[Listed]:
        raise StoreError(f"{self.address}: a web server does not list its files; use a folder or s3://")

    def _refuse(self, *_: object) -> NoReturn:
        raise StoreError(f"{self.address}: a web server is only read; use a folder or s3://")


def open_web(address: str) -> WebPlace:
    """`http(s)://…`: a folder of a web server, or one file of it.

    Raises:
        UsageError: a token of the environment that no header can hold.
    """
    return WebPlace(address)


def open_request(request: Request) -> WebPlace:
    """One file, asked for as this request says: with its headers, and no others."""
    return WebPlace(request.url, request.headers)
