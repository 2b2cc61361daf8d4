"""Where finished files go: a folder or a bucket. Putting the same bytes under a key again changes nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from comfyfarm.addresses import mask
from comfyfarm.cache.objects import ObjectPlace, S3Access, open_place
from comfyfarm.cache.place import Guard, PutFile
from comfyfarm.errors import UsageError


class OutputStore(Protocol):
    """Takes whole files under keys; none is ever seen half-written."""

    @property
    def address(self) -> str:
        """Where it is, as it may be printed."""
        ...

    async def put(self, key: str, file: Path, *, sha256: str, size: int) -> None:
        """Store a file of `size` bytes under `key`. Safe to repeat, also after a crash in the middle.

        Raises:
            StoreError: the store did not take it, or not all of it.
        """
        ...

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Store files and, once all are there, a small one: key and bytes. Safe to repeat.

        Raises:
            StoreError: the store did not take a file, or not all of it; `last` was not written.
        """
        ...

    async def remove(self, keys: Sequence[str], *, guard: Guard) -> None:
        """Take files away again; those that are not there are no trouble.

        Raises:
            StoreError: the store did not let one go.
        """
        ...


class PlaceStore:
    """An output store in a place of the cache's kind.

    A folder checks the bytes on their way; a bucket keeps the SHA-256 with the object, and its copy's size is
    checked.
    """

    def __init__(self, place: ObjectPlace) -> None:
        self._place = place

    @property
    def address(self) -> str:
        """Where it is, as it may be printed."""
        return self._place.address

    async def put(self, key: str, file: Path, *, sha256: str, size: int) -> None:
        """Store a file of `size` bytes under `key`."""
        await self._place.put_file(key, file, sha256=sha256, size=size, mode="overwrite")

    async def put_all(self, files: Sequence[PutFile], last: tuple[str, bytes], *, guard: Guard) -> None:
        """Store files and, once all are there, a small one: key and bytes."""
        await self._place.put_all(files, last, guard=guard)

    async def remove(self, keys: Sequence[str], *, guard: Guard) -> None:
        """Take files away again; those that are not there are no trouble."""
        await self._place.remove(keys, guard=guard)


def open_output_store(address: str, *, access: S3Access | None = None) -> OutputStore:
    """Open a folder (a path or `file://`) or `s3://bucket/prefix`. Nothing is written or asked yet.

    Args:
        address: where; a folder is made when the first file comes.
        access: credentials for `s3://`; else `AWS_*` of the environment says.

    Raises:
        UsageError: outputs cannot go there.
    """
    if address.lower().startswith(("http://", "https://")):
        raise UsageError(
            f"{mask(address)}: a web server takes no outputs; use a folder or s3://bucket/prefix"
        )
    return PlaceStore(open_place(address, access=access))
