"""A file into the mirror: hashed once, sent unless its very bytes are there, and described beside."""

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.mirrors.entry import MirrorEntry, mirror_key, read_entry, write_entry
from comfyfarm.cache.mirrors.hashes import Hashes, hashes_of
from comfyfarm.cache.mirrors.opened import without_secrets
from comfyfarm.cache.mirrors.read_back import read_back
from comfyfarm.cache.places.place import ObjectPlace, OnBytes, PutFile, go_on, untold
from comfyfarm.errors import CorruptBytes, StoreError

_log = logging.getLogger(__name__)

_TRIES = 3
"""Two that describe one file at once see each other's names in the second, as a rule."""


class FileFacts(NamedTuple):
    """What is known of a file besides its bytes."""

    names: tuple[str, ...] = ()
    """Under which workflows know it."""
    folder: str | None = None
    """Key of ComfyUI's models folder."""
    source: str | None = None
    licence: str | None = None


async def add_file(
    place: ObjectPlace,
    path: Path,
    known: FileFacts | None = None,
    *,
    sha256: str | None = None,
    deep: bool = False,
    on_bytes: OnBytes | None = None,
) -> MirrorEntry:
    """Hash a file and put it into the mirror; the same bytes are not sent again, wrong ones are replaced.

    Names join those that the mirror knows; folder, source and licence replace them where given.

    Args:
        place: the mirror.
        path: the file.
        known: what else is known of it.
        sha256: what it must be.
        deep: read the mirror's copy also where its server vouches for it.
        on_bytes: told of each byte twice, from any thread: once it is hashed, and once it is there.

    Raises:
        InputError: the file cannot be read.
        CorruptBytes: it is not what it must be.
        StoreError: the mirror did not take it.
    """
    told = on_bytes or untold
    hashes = await asyncio.to_thread(hashes_of, path, told)
    if sha256 is not None and hashes.sha256 != sha256:
        raise CorruptBytes(f"{path}: its SHA-256 is {hashes.sha256}, and {sha256} was expected")
    put = PutFile(name=mirror_key(hashes.sha256), file=path, sha256=hashes.sha256, size=hashes.size)
    await _put(place, put, hashes, told, deep=deep)
    entry = await _describe(place, hashes, known or FileFacts(), name=path.name)
    if await place.size_of(put.name) != put.size:
        # A clean-up that found the file unused a moment ago took it away; what is described now is kept.
        await _put(place, put, hashes, untold, deep=False)
    return entry


async def is_mirrored(place: ObjectPlace, sha256: str, size: int, known: FileFacts) -> bool:
    """Whether the mirror has a file and an entry of it, to which what is known is added.

    Its bytes are right by the server's word; where that says nothing, by their number.

    Raises:
        StoreError: the mirror did not answer.
    """
    entry = await read_entry(place, sha256)
    if entry is None or entry.size != size or await place.size_of(mirror_key(sha256)) != size:
        return False
    if await place.holds(mirror_key(sha256), sha256=sha256, size=size, part_sha256=entry.parts) is False:
        return False
    await _describe(place, Hashes(sha256, size, entry.parts), known, name=sha256)
    # A clean-up that found the file unused a moment ago may just have taken it away.
    return await place.size_of(mirror_key(sha256)) == size


async def _put(place: ObjectPlace, put: PutFile, hashes: Hashes, told: OnBytes, *, deep: bool) -> None:
    is_there = await _holds(place, put, hashes, deep=deep)
    if is_there:
        told(put.size)
        return
    if is_there is False:
        _log.warning("%s: the mirror's copy of %s is wrong; replaced", place.address, put.name)
        if await place.put_file(put, mode="overwrite", part_sha256=hashes.parts, on_bytes=told):
            return
        # The store vouches for bytes that we have read to be others.
        await place.remove([put.name], guard=go_on)
    if not await place.put_file(put, mode="create", part_sha256=hashes.parts, on_bytes=told):
        told(put.size)


async def _holds(place: ObjectPlace, put: PutFile, hashes: Hashes, *, deep: bool) -> bool | None:
    """Whether the mirror has these bytes: None when it has no such file, False when it has a wrong one."""
    size = await place.size_of(put.name)
    if size is None:
        return None
    is_right = await place.holds(put.name, sha256=put.sha256, size=put.size, part_sha256=hashes.parts)
    if is_right is None or (deep and is_right):
        found = await read_back(place, put.name, size, on_bytes=untold)
        is_right = found.sha256 == put.sha256
    return is_right


async def _describe(place: ObjectPlace, hashes: Hashes, known: FileFacts, *, name: str) -> MirrorEntry:
    for _ in range(_TRIES):
        before = await read_entry(place, hashes.sha256)
        entry = _joined(hashes, known, before, name=name)
        # Also where nothing is new: that it is wanted again keeps it from being cleaned up.
        await write_entry(place, entry)
        after = await read_entry(place, hashes.sha256)
        if after is not None and set(entry.names) <= set(after.names):
            return after
    raise StoreError(f"{place.address}: the entry of {hashes.sha256} does not stay as it is written")


def _joined(hashes: Hashes, known: FileFacts, before: MirrorEntry | None, *, name: str) -> MirrorEntry:
    source = without_secrets(known.source) if known.source else None
    return MirrorEntry(
        sha256=hashes.sha256,
        size=hashes.size,
        names=tuple(sorted({*known.names, *(before.names if before else ())} or {name})),
        folder=known.folder or (before.folder if before else None),
        source=source or (before.source if before else None),
        licence=known.licence or (before.licence if before else None),
        parts=hashes.parts,
    )
