"""What lies in a mirror: model files under their SHA-256, and what is known of each beside."""

from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.addresses import is_address
from comfyfarm.cache.blobs import blob_key
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.ids import Sha256

META = "meta/"
"""Before the key of every entry."""
BLOBS = "sha256/"
"""Before the key of every file."""


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
    """Where it came from, without password or signature."""
    licence: str | None
    parts: tuple[Sha256, ...]
    """SHA-256 of each 16 MiB: tells which stretch of a damaged file must come again."""


def mirror_key(sha256: str) -> str:
    """Where a file lies in a mirror, relative to its address."""
    return blob_key(sha256)


def meta_key(sha256: str) -> str:
    """Where its `MirrorEntry` lies."""
    return f"{META}{sha256}.json"


def mirror_source(address: str, sha256: str) -> str:
    """Address of a file in the mirror at `address`; a query (a token) is kept."""
    if not is_address(address):
        return str(Path(address) / mirror_key(sha256))
    if address.lower().startswith("s3://"):
        return f"{address.rstrip('/')}/{mirror_key(sha256)}"
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{mirror_key(sha256)}"))


async def read_entry(place: ObjectPlace, sha256: str) -> MirrorEntry | None:
    """What the mirror knows of a file; None when it knows nothing, or nothing that can be read.

    Raises:
        StoreError: the mirror did not answer.
    """
    data = await place.read_bytes(meta_key(sha256))
    try:
        entry = None if data is None else MirrorEntry.model_validate_json(data)
    except ValueError:
        return None
    return entry if entry is not None and entry.sha256 == sha256 else None


async def write_entry(place: ObjectPlace, entry: MirrorEntry) -> None:
    """Write what is known of a file, replacing what was known.

    Raises:
        StoreError: the mirror did not take it.
    """
    text = entry.model_dump_json(indent=2) + "\n"
    await place.put_bytes(meta_key(entry.sha256), text.encode())
