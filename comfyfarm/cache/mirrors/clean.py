"""What may leave a mirror: what no lock names and nobody has put in of late.

The entry goes before its file: where that is cut short, a file is left over that nothing describes, and the
next clean-up takes it. Both are looked at again right before each goes: what was written since the decision
stays. One instant remains, since no store removes a file only if it is as old as it was: between that look
and the removal after it. Whoever adds the file just then reads its entry back, and looks for the file last of
all; only when all of that falls into the instant is it lost, and `mirror verify` or adding it again tells.
"""

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

from comfyfarm.cache.mirrors.entry import MirrorEntry, meta_key, mirror_key
from comfyfarm.cache.mirrors.inventory import Inventory, read_entries
from comfyfarm.cache.places.place import ObjectPlace, Upload, go_on
from comfyfarm.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

DAY_S = 86400.0


class Unneeded(NamedTuple):
    """One file that may go, or what is left of it."""

    sha256: str
    size: int
    """Bytes; 0 where only the entry is left."""
    age_s: float
    """Since it was last put in or described."""
    has_file: bool
    has_entry: bool
    file_modified: datetime | None = None
    """When it was last written, as the store said when this was decided."""
    entry_modified: datetime | None = None


class Rubbish(NamedTuple):
    """All that may go."""

    files: tuple[Unneeded, ...]
    uploads: tuple[Upload, ...]
    kept: int
    """Files that a lock names."""
    too_young: int
    """Files that no lock names, and that are younger than asked for."""

    @property
    def size_bytes(self) -> int:
        """Of the files together."""
        return sum(one.size for one in self.files)


def find_unneeded(inventory: Inventory, keep: Collection[str], *, now: float, older_than_s: float) -> Rubbish:
    """Decide, without touching anything; unfinished uploads are not looked for.

    Args:
        inventory: what is there.
        keep: SHA-256 of what locks name.
        now: Unix time in seconds.
        older_than_s: what is younger stays: another command may be about to put it to use.
    """
    files, too_young = [], 0
    shas = {*inventory.blobs, *inventory.metas} - set(keep)
    for sha256 in sorted(shas):
        blob, meta = inventory.blobs.get(sha256), inventory.metas.get(sha256)
        age_s = min(now - _seconds(one.modified) for one in (blob, meta) if one is not None)
        if age_s < older_than_s:
            too_young += 1
        else:
            size = blob.size if blob else 0
            times = (blob.modified if blob else None, meta.modified if meta else None)
            files.append(Unneeded(sha256, size, age_s, blob is not None, meta is not None, *times))
    return Rubbish(tuple(files), (), len(set(keep) & set(inventory.blobs)), too_young)


async def find_rubbish(
    place: ObjectPlace,
    inventory: Inventory,
    keep: Collection[str],
    *,
    older_than_s: float,
    clock: Clock | None = None,
) -> Rubbish:
    """All that may go, unfinished uploads included. Nothing is touched.

    Raises:
        StoreError: the mirror did not answer.
    """
    now = (clock or SystemClock()).now()
    rubbish = find_unneeded(inventory, keep, now=now, older_than_s=older_than_s)
    return rubbish._replace(uploads=await place.stale_uploads(older_than_s))


async def remove_rubbish(
    place: ObjectPlace, rubbish: Rubbish, *, on_removed: Callable[[Unneeded], None] | None = None
) -> tuple[Unneeded, ...]:
    """Remove it; returns what has gone. What somebody has put in or described again meanwhile stays.

    Raises:
        StoreError: the mirror did not let it go; what was removed stays removed.
    """
    gone = []
    for one in rubbish.files:
        if not await _remove(place, one):
            _log.info("%s: put in again just now; it stays", one.sha256)
            continue
        gone.append(one)
        if on_removed is not None:
            on_removed(one)
    for upload in rubbish.uploads:
        await place.abort_upload(upload)
    return tuple(gone)


async def _remove(place: ObjectPlace, one: Unneeded) -> bool:
    file, entry = mirror_key(one.sha256), meta_key(one.sha256)
    if not await _is_as_seen(place, file, one.file_modified):
        return False
    if not await _is_as_seen(place, entry, one.entry_modified):
        return False
    if one.has_entry:
        await place.remove([entry], guard=go_on)
    if one.has_file:
        if not await _is_as_seen(place, file, one.file_modified) or await place.size_of(entry) is not None:
            return False
        await place.remove([file], guard=go_on)
    return True


async def _is_as_seen(place: ObjectPlace, name: str, modified: datetime | None) -> bool:
    """Whether nobody has written it since; one that is gone is as good as not written."""
    async for listed in place.list(f"{name.rpartition('/')[0]}/"):
        if listed.name == name:
            return listed.modified == modified
    return True


async def titles(place: ObjectPlace, files: Collection[Unneeded]) -> dict[str, str]:
    """`folder/name` of what is described, by SHA-256.

    Raises:
        StoreError: the mirror did not answer.
    """
    entries = await read_entries(place, [one.sha256 for one in files if one.has_entry])
    return {sha256: title(entry) for sha256, entry in entries.items() if entry is not None}


def title(entry: MirrorEntry) -> str:
    """For people: its models folder and first name."""
    name = entry.names[0] if entry.names else entry.sha256
    return f"{entry.folder}/{name}" if entry.folder else name


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
