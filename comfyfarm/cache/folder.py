"""A folder as a place: files appear in it whole and durable, under their names, or not at all."""

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from comfyfarm.cache.place import ObjectPlace
from comfyfarm.cache.temporary import TemporaryFile, open_temporary
from comfyfarm.errors import StoreError

_T = TypeVar("_T")

COPY_BYTES = 4 << 20


class FolderPlace(ObjectPlace):
    """Files under `root`. Temporaries lie in `<root>/.partial/<hash of the name>/`."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.address = str(self.root)

    def path(self, name: str) -> Path:
        """Where the file of this name lies; the root itself for the empty name."""
        return self.root / name if name else self.root

    async def size_of(self, name: str) -> int | None:
        """Size in bytes of a file; None when there is none."""
        return await self._try(self._size_of, name)

    async def read_bytes(self, name: str) -> bytes | None:
        """A small file; None when there is none."""
        return await self._try(self._read, name)

    async def put_bytes(self, name: str, data: bytes) -> None:
        """Write a small file, whole or not at all, replacing what is there."""

        def write(name: str) -> None:
            temporary = self._temporary(name)
            try:
                _write_all(temporary.fd, data)
                temporary.publish(self.path(name))
            finally:
                temporary.discard()

        await self._try(write, name)

    async def put_file(
        self, name: str, file: Path, *, sha256: str, size: int, mode: Literal["create", "overwrite"]
    ) -> bool:
        """Copy a file, checking its bytes on the way. The same bytes under the name are left as they are."""

        def copy(name: str) -> bool:
            if self._size_of(name) == size and (mode == "create" or hash_file(self.path(name)) == sha256):
                return False
            temporary = self._temporary(name)
            try:
                if _copy(file, temporary.fd) != sha256:
                    raise StoreError(f"{file}: no longer the bytes that were recorded for {name}")
                temporary.publish(self.path(name))
            finally:
                temporary.discard()
            return True

        return await self._try(copy, name)

    def _temporary(self, name: str) -> TemporaryFile:
        return open_temporary(self.root / ".partial" / hashlib.sha256(name.encode()).hexdigest())

    def _size_of(self, name: str) -> int | None:
        try:
            return self.path(name).stat().st_size
        except FileNotFoundError:
            return None

    def _read(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    async def _try(self, work: Callable[[str], _T], name: str) -> _T:
        try:
            return await asyncio.to_thread(work, name)
        except OSError as exc:
            # The temporary's own name says nothing to anyone.
            ours = str(exc.filename or "").startswith(str(self.root)) or not exc.filename
            at = self.path(name) if ours else exc.filename
            raise StoreError(f"{at}: {exc.strerror or exc}") from exc


def hash_file(path: Path) -> str:
    """SHA-256 of a whole file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, fd: int) -> str:
    digest = hashlib.sha256()
    with source.open("rb", buffering=0) as file:
        while data := file.read(COPY_BYTES):
            digest.update(data)
            _write_all(fd, data)
    return digest.hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
