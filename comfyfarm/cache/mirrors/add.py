"""The mirror: model files under their SHA-256 in a bucket or folder, with what is known of them beside."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.addresses import is_address
from comfyfarm.cache.blobs import blob_key
from comfyfarm.cache.places.folder import COPY_BYTES
from comfyfarm.cache.places.place import ObjectPlace, PutFile
from comfyfarm.cache.transfer.sink import PART_BYTES
from comfyfarm.errors import InputError
from comfyfarm.ids import Sha256


class MirrorEntry(BaseModel):
    """What is known of a mirrored file: `meta/<64 hex>.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Sha256
    size: NonNegativeInt
    """Bytes."""
    names: tuple[str, ...]
    """Under which workflows know it, sorted."""
    folder: str | None
    """Key of ComfyUI's models folder, such as `checkpoints`."""
    source: str | None
    """Where it came from."""
    licence: str | None
    parts: tuple[Sha256, ...]
    """SHA-256 of each 16 MiB: tells which stretch of a damaged file must come again."""


def mirror_key(sha256: str) -> str:
    """Where a file lies in a mirror, relative to its address."""
    return blob_key(sha256)


def meta_key(sha256: str) -> str:
    """Where its `MirrorEntry` lies."""
    return f"meta/{sha256}.json"


def mirror_source(address: str, sha256: str) -> str:
    """Address of a file in the mirror at `address`; a query (a token) is kept."""
    if not is_address(address):
        return str(Path(address) / mirror_key(sha256))
    if address.lower().startswith("s3://"):
        return f"{address.rstrip('/')}/{mirror_key(sha256)}"
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{mirror_key(sha256)}"))


async def add_file(
    place: ObjectPlace,
    path: Path,
    *,
    names: tuple[str, ...] = (),
    folder: str | None = None,
    source: str | None = None,
    licence: str | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> MirrorEntry:
    """Hash a file and put it into the mirror; one that is there already is not sent again.

    Names join those that the mirror knows; folder, source and licence replace them where given.
    `on_bytes` is told of each byte twice, from any thread: once it is hashed, and once it is there.

    Raises:
        InputError: the file cannot be read.
        StoreError: the mirror did not take it.
    """
    told = on_bytes or _untold
    hashes = await asyncio.to_thread(_hash, path, told)
    put = PutFile(name=mirror_key(hashes.sha256), file=path, sha256=hashes.sha256, size=hashes.size)
    is_new = await place.put_file(put, mode="create", on_bytes=on_bytes)
    if not is_new:
        told(hashes.size)
    known = await read_entry(place, hashes.sha256)
    entry = MirrorEntry(
        sha256=hashes.sha256,
        size=hashes.size,
        names=tuple(sorted({*names, *(known.names if known else ())} or {path.name})),
        folder=folder or (known.folder if known else None),
        source=source or (known.source if known else None),
        licence=licence or (known.licence if known else None),
        parts=hashes.parts,
    )
    if entry != known:
        text = entry.model_dump_json(indent=2) + "\n"
        await place.put_bytes(meta_key(hashes.sha256), text.encode())
    return entry


async def read_entry(place: ObjectPlace, sha256: str) -> MirrorEntry | None:
    """What the mirror knows of a file; None when it knows nothing, or nothing that can be read.

    Raises:
        StoreError: the mirror did not answer.
    """
    data = await place.read_bytes(meta_key(sha256))
    try:
        return None if data is None else MirrorEntry.model_validate_json(data)
    except ValueError:
        return None


class _Hashes(NamedTuple):
    sha256: str
    size: int
    parts: tuple[str, ...]


def _untold(_count: int) -> None:
    """Nobody asked."""


def _hash(path: Path, told: Callable[[int], None]) -> _Hashes:
    whole, part, parts, size = hashlib.sha256(), hashlib.sha256(), [], 0
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(min(COPY_BYTES, PART_BYTES - size % PART_BYTES)):
                whole.update(data)
                part.update(data)
                size += len(data)
                told(len(data))
                if size % PART_BYTES == 0:
                    parts.append(part.hexdigest())
                    part = hashlib.sha256()
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror})") from exc
    if size % PART_BYTES:
        parts.append(part.hexdigest())
    return _Hashes(whole.hexdigest(), size, tuple(parts))
