"""What a place that holds files under names can do, and as whom a bucket is reached."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import SecretStr

Guard = Callable[[], None]
"""Called before each step, from any thread; what it raises ends the whole."""
OnBytes = Callable[[int], None]
"""Told of bytes as they go, from any thread."""
Mode = Literal["create", "overwrite"]
DEFAULT_REGION = "us-east-1"


def go_on() -> None:
    """A guard that ends nothing."""


def untold(_count: int) -> None:
    """For bytes of which nobody wants to be told."""


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """Where and as whom to speak S3. Never printed: the secrets are masked."""

    endpoint: str | None = None
    """Such as `http://127.0.0.1:8333` or `https://<account>.r2.cloudflarestorage.com`; None is AWS itself."""
    access_key: str
    secret: SecretStr
    session_token: SecretStr | None = None
    region: str = DEFAULT_REGION


def read_s3_access(environ: Mapping[str, str] | None = None) -> S3Access | None:
    """Credentials from `AWS_*`; None when there are none (then the library asks the machine's own role)."""
    env = os.environ if environ is None else environ
    key, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    token = env.get("AWS_SESSION_TOKEN")
    return S3Access(
        endpoint=s3_endpoint(env),
        access_key=key,
        secret=SecretStr(secret),
        session_token=SecretStr(token) if token else None,
        region=s3_region(env),
    )


def s3_endpoint(env: Mapping[str, str]) -> str | None:
    """`AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL`, else None for AWS itself."""
    return env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None


def s3_region(env: Mapping[str, str]) -> str:
    """`AWS_REGION`, else `AWS_DEFAULT_REGION`, else `DEFAULT_REGION`."""
    return env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


@dataclass(frozen=True, kw_only=True)
class PutFile:
    """A file on its way to a place."""

    name: str
    """Under which it is to lie there."""
    file: Path
    sha256: str
    size: int
    """Bytes."""


class Listed(NamedTuple):
    """A file that a place holds."""

    name: str
    """Relative to the place."""
    size: int
    """Bytes."""
    modified: datetime
    """When it was last written, with time zone."""


class Upload(NamedTuple):
    """An upload of many parts that was begun and has not ended: it costs room, and nobody sees it."""

    name: str
    upload_id: str
    begun: datetime
    """With time zone, by the store's clock."""


class ObjectPlace(ABC):
    """Files under names. Every method raises `StoreError` when the place does not take or give them."""

    address: str
    """As it may be printed: without password, token or signature."""

    @abstractmethod
    async def size_of(self, name: str) -> int | None:
        """Size in bytes of a file; None when there is none."""

    @abstractmethod
    async def read_bytes(self, name: str) -> bytes | None:
        """A small file; None when there is none."""

    @abstractmethod
    async def put_bytes(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all, replacing what is there."""

    @abstractmethod
    async def put_file(
        self,
        put: PutFile,
        *,
        mode: Mode,
        part_sha256: tuple[str, ...] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Write a file, whole or not at all; what arrived has its size and its hash.

        Under `create` a file of that size that is already there is kept; for names made of the content's
        hash. Returns whether bytes were written.

        Args:
            put: what, and under which name.
            mode: whether a file that is there already is kept, or replaced where its bytes differ.
            part_sha256: SHA-256 of each 16 MiB, where they are known; saves hashing them again.
            on_bytes: told of bytes as they go, from any thread; negative when some must go again.

        Raises:
            SpoiledFile: the file is not the one that `put` names.
        """

    @abstractmethod
    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Remove files. One that is not there is as good as removed."""

    @abstractmethod
    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Write files, replacing what is there, and then a small one: where that lies, all are there.

        Nobody may change the files afterwards: a folder links them where it can.
        All get their chance before the first failure is raised: what is stored need not be sent again.
        """

    @abstractmethod
    def list(self, prefix: str = "") -> AsyncIterator[Listed]:
        """Files whose names begin with `prefix`, which is empty or ends with `/`; in no order.

        No temporary file is among them, and no unfinished upload.
        """

    async def holds(
        self, name: str, *, sha256: str, size: int, part_sha256: tuple[str, ...] = ()
    ) -> bool | None:
        """Whether the file under a name is this one, by its size and the server's own checksum.

        None where that cannot be said without reading it; only a bucket says it. `part_sha256`, of each
        16 MiB, tells more of one that went up in parts.
        """
        del sha256, part_sha256
        return None if await self.size_of(name) == size else False

    async def stale_uploads(self, older_than_s: float) -> tuple[Upload, ...]:
        """Unfinished uploads under this place that began so many seconds ago or earlier."""
        del older_than_s
        return ()

    async def abort_upload(self, upload: Upload) -> None:
        """Give up an unfinished upload, with all its parts. One that is not there is as good as given up."""
        del upload
