"""Bring what a plan needs into the host's cache: several files at once, the largest first, each verified."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.fetch import OnBytes, fetch
from comfyfarm.cache.mirrors.add import mirror_source
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.folder import hash_file
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import ObjectPlace, S3Access
from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import CorruptBytes, TransferError, UsageError

_log = logging.getLogger(__name__)

FILES_AT_ONCE = 4


class HydrateReport(BaseModel):
    """What hydrating did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fetched: tuple[str, ...]
    """SHA-256 of the files that came, in the order of the request."""
    fetched_bytes: NonNegativeInt
    reused: tuple[str, ...]
    """SHA-256 of the files that were here."""
    reused_bytes: NonNegativeInt
    seconds: NonNegativeFloat


def sources_of(model: Pinned, mirror: str | None) -> tuple[str, ...]:
    """Where to look for a file, best first: the mirror, then what the lock names, each once."""
    first = (mirror_source(mirror, model.sha256),) if mirror else ()
    return tuple(dict.fromkeys((*first, *model.sources)))


def missing(models: Iterable[Pinned], blobs: BlobStore) -> tuple[Pinned, ...]:
    """The files that are not in the cache yet, each content once."""
    wanted = {model.sha256: model for model in models}.values()
    return tuple(model for model in wanted if not blobs.has(model.sha256, size=model.size))


async def hydrate(
    models: Iterable[Pinned],
    *,
    mirror: str | None,
    blobs: BlobStore,
    rereads: bool = False,
    on_progress: OnBytes | None = None,
    access: S3Access | None = None,
    clock: Clock | None = None,
) -> HydrateReport:
    """Bring every file into the cache. All are tried; those that fail are named together.

    Args:
        models: the files; one content is fetched once, however often it is named.
        mirror: address of the mirror, tried before the files' own sources.
        blobs: the cache.
        rereads: also read the files that are here, and fetch those anew that are no longer what they were.
        on_progress: told of bytes as they come, on the event loop; negative when a source is given up.
            Bytes that are here already are not told of.
        access: credentials for an `s3://` mirror; else `AWS_*` says.
        clock: for the report's seconds.

    Raises:
        TransferError: files for which no source gave the bytes, or a cache that cannot be written.
        CorruptBytes: likewise, and a source gave wrong bytes.
        UsageError: the mirror's address is of a kind that is not known.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    if mirror:
        open_place(mirror, access=access)
    wanted = tuple({model.sha256: model for model in models}.values())
    await asyncio.to_thread(blobs.sweep)
    if rereads:
        await asyncio.to_thread(_quarantine_spoiled, wanted, blobs)
    absent = missing(wanted, blobs)
    await _fetch_all(absent, mirror, blobs, on_progress=on_progress, access=access)
    reused = tuple(model for model in wanted if model not in absent)
    return HydrateReport(
        fetched=tuple(model.sha256 for model in absent),
        fetched_bytes=sum(model.size for model in absent),
        reused=tuple(model.sha256 for model in reused),
        reused_bytes=sum(model.size for model in reused),
        seconds=clock.monotonic() - started,
    )


async def hydrate_one(
    model: Pinned,
    *,
    mirror: str | None,
    blobs: BlobStore,
    on_progress: OnBytes | None = None,
    access: S3Access | None = None,
) -> Path:
    """Bring one file into the cache; returns where it lies. One that is here costs one look at its size.

    Raises:
        TransferError: no source gave it, each named with its failure; or the cache cannot be written.
        CorruptBytes: likewise, and a source gave wrong bytes.
    """
    if blobs.has(model.sha256, size=model.size):
        return blobs.path(model.sha256)
    return await fetch(model, _places(model, mirror, access), blobs, on_bytes=on_progress)


def _quarantine_spoiled(models: Iterable[Pinned], blobs: BlobStore) -> None:
    """Read what is here, and take away what is not what its name says."""
    for model in models:
        if blobs.has(model.sha256, size=model.size) and hash_file(blobs.path(model.sha256)) != model.sha256:
            blobs.quarantine(model.sha256, reason="its bytes are no longer those of its name")


def _places(model: Pinned, mirror: str | None, access: S3Access | None) -> list[ObjectPlace]:
    # The given credentials are for the mirror alone; a lock's own sources are the environment's affair.
    places = [open_place(mirror_source(mirror, model.sha256), access=access)] if mirror else []
    for address in sources_of(model, None):
        try:
            places.append(open_place(address))
        except UsageError as exc:
            _log.warning("source left out: %s", exc)
    return places


async def _fetch_all(
    models: Sequence[Pinned],
    mirror: str | None,
    blobs: BlobStore,
    *,
    on_progress: OnBytes | None,
    access: S3Access | None,
) -> None:
    slots = asyncio.Semaphore(FILES_AT_ONCE)

    async def one(model: Pinned) -> TransferError | None:
        async with slots:
            try:
                await hydrate_one(model, mirror=mirror, blobs=blobs, on_progress=on_progress, access=access)
            except TransferError as exc:
                return exc
        return None

    largest_first = sorted(models, key=lambda model: model.size, reverse=True)
    failures = [exc for exc in await asyncio.gather(*map(one, largest_first)) if exc is not None]
    if failures:
        kind = CorruptBytes if any(isinstance(exc, CorruptBytes) for exc in failures) else TransferError
        raise kind("\n".join(dict.fromkeys(map(str, failures))))
