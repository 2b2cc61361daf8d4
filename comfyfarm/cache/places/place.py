"""What a place that holds files under names can do, and as whom a bucket is reached."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, SecretStr

Guard = Callable[[], None]
"""Called before each step, from any thread; what it raises ends the whole."""
DEFAULT_REGION = "us-east-1"
FILES_AT_ONCE = 8


class S3Access(BaseModel):
    """Where and as whom to speak S3. Never printed: the secrets are masked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


class PutFile(BaseModel):
    """A file on its way to a place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """Under which it is to lie there."""
    file: Path
    sha256: str
    size: int
    """Bytes."""


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
        mode: Literal["create", "overwrite"],
        on_bytes: Callable[[int], None] | None = None,
    ) -> bool:
        """Write a file, whole or not at all; what arrived has its size.

        Under `create` a file of that size that is already there is kept; for names made of the content's
        hash. Returns whether bytes were written. `on_bytes` is told of bytes as they go, from any thread.
        """

    @abstractmethod
    async def remove(self, names: Sequence[str], *, guard: Guard) -> None:
        """Remove files. One that is not there is as good as removed."""

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Write files, replacing what is there, and then a small one: where that lies, all are there.

        Nobody may change the files afterwards: a folder links them where it can.
        All get their chance before the first failure is raised: what is stored need not be sent again.
        """
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def one(put: PutFile) -> None:
            async with slots:
                guard()
                await self.put_file(put, mode="overwrite")

        for result in await asyncio.gather(*map(one, files), return_exceptions=True):
            if result is not None:
                raise result
        guard()
        await self.put_bytes(*last)
