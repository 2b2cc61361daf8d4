"""A mirror as a catalogue: what its `meta/<64 hex>.json` say of the files beside them."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from comfyfarm.addresses import is_address
from comfyfarm.ids import Sha256
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, LooseFile, collect
from comfyfarm.lock.paths import is_safe

logger = logging.getLogger(__name__)

META = "meta"
META_NAME = re.compile(r"(?:^|/)([0-9a-f]{64})\.json$")
META_LIMIT_BYTES = 64 * 1024 * 1024
"""A file of a terabyte has 65,536 parts, and their hashes take 4 MB."""
_BLOBS = "sha256"


class _Meta(BaseModel):
    """What is read of it; it holds more."""

    model_config = ConfigDict(extra="ignore")

    sha256: Sha256
    size: NonNegativeInt
    names: tuple[str, ...] = ()
    folder: str | None = None
    source: str | None = None


def is_mirror(folder: Path) -> bool:
    """Whether a folder is a mirror rather than a models folder: by its descriptions, or its blobs."""
    meta = folder / META
    if meta.is_dir() and any(META_NAME.search(item.name) for item in meta.iterdir()):
        return True
    blobs = folder / _BLOBS
    return blobs.is_dir() and any(len(item.name) == 2 and item.is_dir() for item in blobs.iterdir())


def catalogue_of_mirror(
    metas: Iterable[tuple[str, bytes]], *, source_of: Callable[[Sha256], str]
) -> Catalogue:
    """The catalogue that these descriptions make; one that cannot be read is passed over with a warning.

    A file whose models folder is known is an entry; each is also found by its bare name.

    Args:
        metas: name and content of each.
        source_of: address of a file in the mirror, by its hash.
    """
    found = [meta for name, data in metas if (meta := _read(name, data)) is not None]
    loose = tuple(file for meta in found for file in _loose(meta, source_of))
    return collect(_entries(loose)).model_copy(update={"loose": loose})


def _read(name: str, data: bytes) -> _Meta | None:
    hit = META_NAME.search(name)
    try:
        meta = _Meta.model_validate_json(data)
    except ValidationError:
        meta = None
    if hit is None or meta is None or meta.sha256 != hit[1]:
        logger.warning("%s: says nothing that can be read of a file of the mirror; left out", name)
        return None
    return meta


def _loose(meta: _Meta, source_of: Callable[[Sha256], str]) -> Iterator[LooseFile]:
    origin = meta.source if meta.source and is_address(meta.source) else None
    sources = (source_of(meta.sha256), *((origin,) if origin else ()))
    for name in meta.names:
        plain = name.replace("\\", "/")
        yield LooseFile(name=plain, folder=meta.folder, sha256=meta.sha256, size=meta.size, sources=sources)


def _entries(files: Iterable[LooseFile]) -> Iterator[CatalogueEntry]:
    for file in files:
        if file.folder is not None and is_safe(file.folder, file.name):
            yield CatalogueEntry(
                folder=file.folder, path=file.name, sha256=file.sha256, size=file.size, sources=file.sources
            )
