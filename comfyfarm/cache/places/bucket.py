"""An S3-compatible bucket as a place: written by requests of our own, read through obstore or by address."""

import contextlib
import mimetypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from comfyfarm.addresses import mask
from comfyfarm.cache.places import remote
from comfyfarm.cache.places.addressed import PresignedObject
from comfyfarm.cache.places.bucket_puts import PutTarget, put_bytes, put_file
from comfyfarm.cache.places.connections import Connections
from comfyfarm.cache.places.multipart import abort
from comfyfarm.cache.places.multipart_listing import list_uploads
from comfyfarm.cache.places.place import (
    Guard,
    Mode,
    PutFile,
    S3Access,
    Upload,
    go_on,
    read_s3_access,
    s3_endpoint,
    s3_region,
    untold,
)
from comfyfarm.cache.places.remote import RemotePlace, Store
from comfyfarm.cache.places.request import Addressed
from comfyfarm.cache.places.s3_calls import MAX_CONNECTIONS, Calls, Refused
from comfyfarm.cache.places.s3_objects import agrees, composite_of, head
from comfyfarm.cache.places.signing import Bucket, Presigned, Signer
from comfyfarm.cache.places.threads import in_threads, run_in_thread
from comfyfarm.clock import SystemClock
from comfyfarm.errors import StoreError, UsageError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

_T = TypeVar("_T")

FILES_AT_ONCE = 16
ASKED_ALONE = 3
"""So few files are looked at one by one before they are put again; more, by one list of what is there."""
_CREDENTIAL_S = 900
"""After so long obstore asks again for the credentials that it signs with."""


class BucketPlace(RemotePlace):
    """Objects under a prefix of one bucket."""

    def __init__(self, address: str, bucket: Bucket, access: S3Access | None) -> None:
        # Not a URL path: S3 keys are plain text, `%`, `?` and `#` included.
        prefix = address.partition("://")[2].partition("/")[2]
        signer = Signer(bucket.region, access)
        links = Connections(bucket.origin, limit=MAX_CONNECTIONS)
        self._calls = Calls(bucket, signer, links)
        super().__init__(
            address,
            prefix,
            make_store=partial(_make_store, bucket, signer),
            plain_http=bucket.origin.lower().startswith("http://"),
        )

    def addressed(self, name: str = "") -> Addressed:
        """An object, by an address that is signed on this machine and made anew in time."""
        key = self.key(name)
        return PresignedObject(self.shown(name), partial(self._calls.presign, key))

    def presign(self, name: str, *, expires_s: int) -> Presigned:
        """An address of an object that whoever has it may ask, for so many seconds. May block.

        Raises:
            StoreError: there are no credentials.
        """
        return self._calls.presign(self.key(name), expires_s)

    async def put_bytes(self, name: str, data: bytes) -> None:
        """Write a small object, replacing what is there."""
        await self._do(name, lambda calls: self._put_small(calls, name, data, is_absent=True))

    async def put_file(
        self,
        put: PutFile,
        *,
        mode: Mode,
        part_sha256: tuple[str, ...] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Upload a file, in parts when it is large; what the server says of its copy is compared.

        Where it says nothing, the copy is read back. Two uploads of one file at once are one object.
        """

        def work(calls: Calls) -> bool:
            return self._put(calls, put, mode, part_sha256=part_sha256, told=on_bytes or untold)

        return await self._do(put.name, work)

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Upload files and then a small one. What is there with the same bytes is not sent again."""
        there = await self._there([*(put.name for put in files), last[0]])

        def work(calls: Calls) -> None:
            outcomes: dict[int, bool | Exception] = {}

            def one(number: int, put: PutFile) -> None:
                try:
                    with self._said(put.name):
                        guard()
                        is_absent = there is not None and put.name not in there
                        outcomes[number] = self._put(
                            calls, put, "overwrite", guard=guard, is_absent=is_absent
                        )
                except Exception as exc:  # noqa: BLE001 - all get their chance; the first is raised below
                    outcomes[number] = exc

            in_threads([partial(one, *each) for each in enumerate(files)], at_once=FILES_AT_ONCE)
            for _, outcome in sorted(outcomes.items(), key=lambda each: each[0]):
                if isinstance(outcome, Exception):
                    raise outcome
            guard()
            is_absent = all(outcomes.values()) if there is None else last[0] not in there
            self._put_small(calls, *last, is_absent=is_absent)

        await self._do(last[0], work)

    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Remove objects."""
        for name in names:
            guard()
            with self.errors(name), contextlib.suppress(FileNotFoundError):
                await self.reader().delete_async(self.key(name))

    async def holds(
        self, name: str, *, sha256: str, size: int, part_sha256: tuple[str, ...] = ()
    ) -> bool | None:
        """Whether an object is this file, by its size and the store's own checksum, of parts as well."""
        found = await self._do(name, lambda calls: head(calls, self.key(name)))
        composite = partial(composite_of, part_sha256) if part_sha256 else None
        return False if found is None else agrees(found, size=size, sha256=sha256, composite=composite)

    async def stale_uploads(self, older_than_s: float) -> tuple[Upload, ...]:
        """Unfinished uploads under this place that began so many seconds ago or earlier."""
        now = datetime.fromtimestamp(SystemClock().now(), UTC)
        root = self.key("") + "/" if self.key("") else ""

        def work(calls: Calls) -> tuple[Upload, ...]:
            return tuple(
                Upload(one.key.removeprefix(root), one.upload_id, one.begun)
                for one in list_uploads(calls, root)
                if one.key.startswith(root) and now - one.begun >= timedelta(seconds=older_than_s)
            )

        return await self._do("", work)

    async def abort_upload(self, upload: Upload) -> None:
        """Give up an unfinished upload, with all its parts."""
        await self._do(upload.name, lambda calls: abort(calls, self.key(upload.name), upload.upload_id))

    async def _there(self, names: Sequence[str]) -> set[str] | None:
        """Which of these names are taken; None where each must be asked for by itself."""
        folders = {name.partition("/")[0] for name in names if "/" in name}
        if len(names) <= ASKED_ALONE or len(folders) != 1:
            return None
        with contextlib.suppress(StoreError):
            return {found.name async for found in self.list(folders.pop() + "/")}
        return None

    def _put(
        self,
        calls: Calls,
        put: PutFile,
        mode: Mode,
        *,
        part_sha256: tuple[str, ...] = (),
        told: Callable[[int], None] = untold,
        guard: Guard = go_on,
        is_absent: bool = False,
    ) -> bool:
        target = PutTarget(calls, self.key(put.name), _attributes(put.name), told, guard)
        return put_file(target, put, mode=mode, part_sha256=part_sha256, is_absent=is_absent)

    def _put_small(self, calls: Calls, name: str, data: bytes, *, is_absent: bool) -> None:
        target = PutTarget(calls, self.key(name), _attributes(name), untold, go_on)
        put_bytes(target, data, is_absent=is_absent)

    async def _do(self, name: str, work: Callable[[Calls], _T]) -> _T:
        stop = threading.Event()
        calls = self._calls.until(stop, tries=remote.MAX_RETRIES)
        with self._said(name):
            return await run_in_thread(lambda: work(calls), stop=stop)

    @contextmanager
    def _said(self, name: str) -> Iterator[None]:
        try:
            yield
        except Refused as exc:
            raise StoreError(f"{self.shown(name)}: {exc}") from None


def open_bucket(address: str, *, access: S3Access | None = None) -> BucketPlace:
    """`s3://bucket/prefix`, as whom `access` says, else `AWS_*`, else botocore's profiles and roles.

    Raises:
        UsageError: the address names no bucket.
    """
    name = urlsplit(address).netloc
    if not name:
        raise UsageError(f"{mask(address)}: no bucket is named; write s3://bucket/prefix")
    access = access or read_s3_access()
    endpoint = access.endpoint if access else s3_endpoint(os.environ)
    region = access.region if access else s3_region(os.environ)
    return BucketPlace(address, Bucket(name, endpoint, region), access)


def _make_store(bucket: Bucket, signer: Signer, client: "ClientConfig", retry: "RetryConfig") -> Store:
    config: S3Config = {"region": bucket.region}
    if bucket.endpoint:
        # Path style, which every store but AWS understands without DNS of its own.
        config["endpoint"] = bucket.endpoint
        config["virtual_hosted_style_request"] = False

    def credential() -> "S3Credential":
        keys = signer.keys()
        until = datetime.fromtimestamp(SystemClock().now() + _CREDENTIAL_S, UTC)
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret,
            "token": keys.token,
            "expires_at": until,
        }

    # A provider rather than plain values: then nothing of the environment (a session token) mixes with them.
    from obstore.store import S3Store

    return S3Store(
        bucket.name, config=config, client_options=client, retry_config=retry, credential_provider=credential
    )


def _attributes(name: str) -> dict[str, str]:
    kind = mimetypes.guess_type(name)[0]
    return {"Content-Type": kind} if kind else {}
