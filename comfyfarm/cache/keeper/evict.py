"""Take blobs out of a cache: their links first, then the blob, durably, with the cache locked.

Whatever step a process dies at, the rest is a cache in order: a blob without links, or links to nothing of
which the index still knows, or an index that still knows a blob which is gone.
"""

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.admission import CacheState, Cause, Stay, why_it_stays
from comfyfarm.cache.keeper.cache_lock import is_locked
from comfyfarm.cache.keeper.cache_state import claimed
from comfyfarm.cache.keeper.index import Index
from comfyfarm.cache.keeper.known import Known
from comfyfarm.cache.keeper.notes import count, forget_blobs
from comfyfarm.cache.keeper.views import drop_empty_views
from comfyfarm.cache.layout import is_link_to, waiting_name

_log = logging.getLogger(__name__)


class EvictReport(NamedTuple):
    """What evicting did."""

    evicted: tuple[str, ...]
    stayed: Mapping[str, Stay]
    """Why, by SHA-256."""
    freed_bytes: int


def evict_blobs(
    shas: Sequence[str], blobs: BlobStore, known: Known, *, index: Index, disk: Disk
) -> tuple[str, ...]:
    """Evict these blobs, except those that somebody holds by a lock on the blob; returns which went.

    Raises:
        OSError: the disk cannot be written. What went before is gone, and noted where that was possible.
    """
    gone: dict[str, int] = {}
    emptied: set[Path] = set()
    try:
        for sha in shas:
            blob = blobs.path(sha)
            with claimed(blob) as is_ours:
                if not is_ours:
                    continue
                size = blobs.size(sha) or 0
                emptied |= _remove_links(sha, blob, known, disk)
                disk.unlink(blob)
            gone[sha] = size
            disk.sync_folder(blob.parent)
    finally:
        if gone:
            _forget(gone, index)
    drop_empty_views(blobs.root, emptied, disk=disk)
    return tuple(gone)


def evict_named(
    shas: Sequence[str], blobs: BlobStore, state: CacheState, known: Known, *, index: Index, disk: Disk
) -> EvictReport:
    """Evict these, except what is pinned or in use.

    Raises:
        OSError: as `evict_blobs`.
    """
    here = [sha for sha in dict.fromkeys(shas) if sha in state.blobs]
    stayed = {sha: why for sha in here if (why := why_it_stays(sha, state, forced=True))}
    leaving = [sha for sha in here if sha not in stayed]
    gone = evict_blobs(leaving, blobs, known, index=index, disk=disk)
    stayed |= {sha: Stay(Cause.IN_USE, "in use") for sha in leaving if sha not in gone}
    stayed |= {sha: Stay(Cause.ABSENT, "is not here") for sha in shas if sha not in state.blobs}
    freed = sum(state.blobs[sha].size for sha in gone if state.blobs[sha].is_freeable)
    return EvictReport(gone, stayed, freed)


def remove_hard_links(sha256: str, blob: Path, known: Known, *, disk: Disk) -> None:
    """Take a wrong blob's hard links away: they would go on showing its bytes when it lies in quarantine.

    Symbolic ones stay: they point to the place where the right bytes will come.
    """
    _remove_links(sha256, blob, known, disk, is_hard_only=True)


def drop_partial(folder: Path, *, disk: Disk) -> bool:
    """Remove the rest of a transfer, unless a living process has it; whether it is gone."""
    with contextlib.ExitStack() as held:
        # The lock last: as long as it is there, nobody takes the rest for one of his own. The data first: a
        # journal without data is known to be void.
        paths = sorted(_inside(folder), key=lambda path: (path.name == "lock", path.name))
        for path in paths:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            held.callback(os.close, fd)
            if is_locked(fd, exclusively=True):
                return False
        for path in paths:
            disk.unlink(path)
        # It may be another's from here on; theirs is not empty.
        with contextlib.suppress(OSError):
            disk.remove_folder(folder)
            disk.remove_folder(folder.parent)
    return True


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _remove_links(sha: str, blob: Path, known: Known, disk: Disk, *, is_hard_only: bool = False) -> set[Path]:
    """Returns the folders in which they were."""
    touched = set()
    for path in _names_of(link.path for link in known.links.get(sha, ())):
        if is_link_to(path, blob) and not (is_hard_only and path.is_symlink()):
            disk.unlink(path)
            touched.add(path.parent)
    for folder in sorted(touched):
        disk.sync_folder(folder)
    return touched


def _names_of(links: Iterable[Path]) -> list[Path]:
    return [path for link in links for path in (link, waiting_name(link))]


def _forget(gone: dict[str, int], index: Index) -> None:
    def work(db: sqlite3.Connection) -> None:
        forget_blobs(db, gone)
        count(db, "evictions", len(gone))
        count(db, "evicted_bytes", sum(gone.values()))

    try:
        index.change(work)
    except OSError as exc:
        _log.warning("%s: %d evicted files could not be noted: %s", index.path, len(gone), exc)
