"""Look at a cache: what lies on its disk, what its index knows, and which leases live."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.admission import Blob, Bounds, CacheState
from comfyfarm.cache.keeper.cache_lock import is_locked
from comfyfarm.cache.keeper.known import Known
from comfyfarm.cache.keeper.leases import LeaseNote
from comfyfarm.cache.keeper.strange import open_regular
from comfyfarm.cache.layout import is_link_to

_UNKNOWN = "perhaps: who pinned what cannot be read"
_READER = "a process that had no room for a lease"
_SHORT = 12


def look(
    blobs: BlobStore, known: Known, leases: Iterable[LeaseNote], bounds: Bounds, *, with_locks: bool
) -> CacheState:
    """The state as it is now. Nothing is changed; what vanishes meanwhile is not in it.

    `with_locks`: also ask who holds a blob by a lock on it; with the cache locked only.
    """
    here = dict(_blobs(blobs, known))
    in_use, promised = _by_file(leases, here)
    if with_locks:
        in_use |= {sha: (*in_use.get(sha, ()), _READER) for sha in here if _has_reader(blobs.path(sha))}
    partial, moving = _partial(blobs.root / ".partial")
    pins = {sha: tuple(pin.words for pin in many) for sha, many in known.pins.items()}
    if not known.is_complete:
        pins = {sha: (*pins.get(sha, ()), _UNKNOWN) for sha in {*here, *pins}}
    return CacheState(
        blobs=here,
        pins=pins,
        in_use=in_use,
        promised=promised,
        partial=partial,
        moving=moving,
        quarantined={path.name: path.lstat().st_size for path in _files(blobs.root / "quarantine")},
        bounds=bounds,
        disk_free_bytes=blobs.free_bytes(),
    )


def shown_name(sha256: str, known: Known) -> str:
    """What to call a blob in a sentence: its first name, else how its hash begins."""
    names = known.names(sha256)
    return names[0] if names else sha256[:_SHORT]


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether nobody holds this very file by a lock, having had no room for a lease; nor can, meanwhile.

    With the cache locked only: two who ask at once would take each other for holders.
    """
    fd = -1
    with contextlib.suppress(FileNotFoundError):
        fd = open_regular(path)
    try:
        yield fd < 0 or not _is_read(fd)
    finally:
        if fd >= 0:
            os.close(fd)


def _has_reader(blob: Path) -> bool:
    with claimed(blob) as is_ours:
        return not is_ours


def _is_read(fd: int) -> bool:
    try:
        return is_locked(fd, exclusively=True)
    except OSError:  # some network file systems want it opened for writing
        return False


def _blobs(blobs: BlobStore, known: Known) -> Iterator[tuple[str, Blob]]:
    for path in (blobs.root / "sha256").glob("??/" + "?" * 64):
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                continue
            use = known.uses.get(path.name)
            last_used = found.st_mtime if use is None else use.last_used
            is_freeable = found.st_nlink < 2 or found.st_nlink <= 1 + _hard_links(path, known)
            yield path.name, Blob(found.st_size, last_used, shown_name(path.name, known), is_freeable)


def _hard_links(blob: Path, known: Known) -> int:
    links = {link.path for link in known.links.get(blob.name, ())}
    return sum(not link.is_symlink() and is_link_to(link, blob) for link in links)


def _by_file(
    leases: Iterable[LeaseNote], here: Mapping[str, Blob]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    in_use: dict[str, tuple[str, ...]] = {}
    promised: dict[str, int] = {}
    for lease in leases:
        for sha, size in lease.files.items():
            in_use[sha] = (*in_use.get(sha, ()), lease.who)
            if sha not in here or here[sha].size != size:
                promised[sha] = max(size, promised.get(sha, 0))
    return in_use, promised


def _partial(root: Path) -> tuple[dict[str, int], frozenset[str]]:
    partial: dict[str, int] = {}
    moving = set()
    for folder in root.iterdir() if root.is_dir() else ():
        files = _files(folder)
        for file in files:
            with contextlib.suppress(OSError):
                found = file.lstat()
                partial[folder.name] = partial.get(folder.name, 0) + min(found.st_size, 512 * found.st_blocks)
        if any(_is_written(file) for file in files):
            moving.add(folder.name)
    return partial, frozenset(moving)


def _is_written(file: Path) -> bool:
    try:
        fd = open_regular(file)
    except OSError:
        return False
    try:
        return is_locked(fd)
    finally:
        os.close(fd)


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []
