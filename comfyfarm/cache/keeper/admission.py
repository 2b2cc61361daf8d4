"""Whether files fit into the cache, and what has to leave for them: pure, on figures that are given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from comfyfarm.plan.host_plan import bytes_text

_SHOWN = 5


class Bounds(NamedTuple):
    """How far a cache may grow."""

    quota_bytes: int | None
    """What all of its files together may take; None is no bound."""
    free_bytes: int
    """What is to stay free on its disk."""


class Blob(NamedTuple):
    """A file that is here."""

    size: int
    last_used: float
    """Unix time in seconds."""
    name: str
    """For people."""
    is_freeable: bool = True
    """Whether its room comes back when it leaves: no hard link of others holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheState:
    """What lies in a cache, who needs it, and what its disk gives."""

    blobs: Mapping[str, Blob]
    """By SHA-256, as all of these."""
    pins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Who pinned a file and why, in words; also files that are not here."""
    in_use: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Who holds a lease of it, in words."""
    promised: Mapping[str, int] = field(default_factory=dict)
    """Sizes of files that other leases wait for."""
    partial: Mapping[str, int] = field(default_factory=dict)
    """Bytes on the disk of files that are on their way, or were."""
    moving: frozenset[str] = frozenset()
    """Those of `partial` that a living process writes."""
    quarantined: Mapping[str, int] = field(default_factory=dict)
    """Sizes by name in the quarantine."""
    bounds: Bounds
    disk_free_bytes: int


class Admission(NamedTuple):
    """The files fit, once these have left, in this order."""

    fetch_bytes: int
    drop_quarantined: tuple[str, ...]
    drop_partial: tuple[str, ...]
    """Rests of transfers that nobody goes on with."""
    evict: tuple[str, ...]
    """Blobs, the longest unused first."""
    freed_bytes: int


class Refusal(NamedTuple):
    """The files do not fit, whatever may leave."""

    reason: str
    """In words, on several lines: what is needed, what there is, who holds it, and the remedy."""


class Cause(Enum):
    """Why a blob does not leave."""

    PINNED = auto()
    IN_USE = auto()
    SHARED = auto()
    """A hard link of others holds it."""
    ABSENT = auto()
    """There is none."""


class Stay(NamedTuple):
    """That a blob does not leave."""

    cause: Cause
    text: str
    """The cause for people, with names."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    fetch_bytes: int
    used_bytes: int
    """Once everything that was promised is here."""
    left_bytes: int
    """Of the disk, then."""
    short_bytes: int
    """That have to leave."""


def admit(wanted: Mapping[str, int], state: CacheState) -> Admission | Refusal:
    """What has to leave so that the wanted files (their sizes by SHA-256) fit with all that was promised.

    Rests and quarantined files leave first, then blobs by their last use: never one that is wanted, pinned
    or in use. When everything is here nothing has to leave, however full the cache is.
    """
    missing = missing_of(wanted, state)
    coming = {
        sha: max(missing.get(sha, 0), state.promised.get(sha, 0)) for sha in {*missing, *state.promised}
    }
    idle = sorted(sha for sha in state.partial if sha not in coming and sha not in state.moving)
    sums = _add_up(missing, coming, state)
    quarantined, freed = _enough(state.quarantined, sorted(state.quarantined), sums.short_bytes)
    dropped, freed_by_drop = _enough(state.partial, idle, sums.short_bytes - freed)
    freed += freed_by_drop
    sizes = {sha: blob.size for sha, blob in state.blobs.items()}
    evicted, freed_by_evicting = _enough(sizes, evictable(state, keep=wanted), sums.short_bytes - freed)
    freed += freed_by_evicting
    if freed < sums.short_bytes:
        return Refusal(_why_not(wanted, state, sums, freed))
    return Admission(sums.fetch_bytes, quarantined, dropped, evicted, freed)


def missing_of(wanted: Mapping[str, int], state: CacheState) -> dict[str, int]:
    """The wanted files that are not here, or not in their size."""
    return {
        sha: size for sha, size in wanted.items() if sha not in state.blobs or state.blobs[sha].size != size
    }


def evictable(state: CacheState, *, keep: Mapping[str, object]) -> list[str]:
    """Blobs that may leave, the longest unused first."""
    free = (
        sha
        for sha, blob in state.blobs.items()
        if blob.is_freeable and not any(sha in kept for kept in (keep, state.pins, state.in_use))
    )
    return sorted(free, key=lambda sha: (state.blobs[sha].last_used, sha))


def why_it_stays(sha256: str, state: CacheState, *, forced: bool = False) -> Stay | None:
    """Why a blob does not leave; None where nothing speaks against it.

    `forced`: it was named, so it leaves also where that frees nothing.
    """
    if sha256 in state.pins:
        return Stay(Cause.PINNED, f"pinned {', '.join(state.pins[sha256])}")
    if sha256 in state.in_use:
        return Stay(Cause.IN_USE, f"in use by {', '.join(state.in_use[sha256])}")
    if not forced and not state.blobs[sha256].is_freeable:
        return Stay(Cause.SHARED, "a hard link that is not known here holds it, and nothing would be freed")
    return None


def _add_up(missing: Mapping[str, int], coming: Mapping[str, int], state: CacheState) -> _Sum:
    ways = {sha: max(coming.get(sha, 0), state.partial.get(sha, 0)) for sha in {*coming, *state.partial}}
    here = sum(blob.size for blob in state.blobs.values())
    used = here + sum(ways.values()) + sum(state.quarantined.values())
    to_write = sum(max(0, size - state.partial.get(sha, 0)) for sha, size in coming.items())
    left = state.disk_free_bytes - to_write
    quota = state.bounds.quota_bytes
    short = max(0, state.bounds.free_bytes - left, 0 if quota is None else used - quota)
    return _Sum(
        fetch_bytes=sum(missing.values()),
        used_bytes=used,
        left_bytes=left,
        short_bytes=short if missing else 0,
    )


def _enough(sizes: Mapping[str, int], order: list[str], short_bytes: int) -> tuple[tuple[str, ...], int]:
    taken, freed = [], 0
    for one in order:
        if freed >= short_bytes:
            break
        taken.append(one)
        freed += sizes[one]
    return tuple(taken), freed


def _why_not(wanted: Mapping[str, int], state: CacheState, sums: _Sum, freed_bytes: int) -> str:
    here = sum(wanted.values()) - sums.fetch_bytes
    first = (
        f"{bytes_text(sums.fetch_bytes)} have to be fetched, and {_what_is_short(state, sums)}; "
        f"{bytes_text(sums.short_bytes - freed_bytes)} are missing"
    )
    lines = [
        f"wanted: {bytes_text(sum(wanted.values()))}, of which {bytes_text(here)} are here",
        *_bounds_in_words(wanted, state, sums),
        f"can leave: {bytes_text(freed_bytes)}",
        *_held_in_words("pinned", state.pins, wanted, state),
        *_held_in_words("in use", state.in_use, wanted, state),
        f"remedy: {'; or '.join(_remedies(wanted, state, sums, freed_bytes))}",
    ]
    return "\n  ".join([first, *lines])


def _what_is_short(state: CacheState, sums: _Sum) -> str:
    quota, floor = state.bounds
    if quota is not None and sums.used_bytes - quota >= floor - sums.left_bytes:
        return f"the quota of the cache is {bytes_text(quota)}"
    return f"the disk of this host has {bytes_text(state.disk_free_bytes)} free"


def _bounds_in_words(wanted: Mapping[str, int], state: CacheState, sums: _Sum) -> Iterator[str]:
    quota, floor = state.bounds
    others = sum(size for sha, size in state.promised.items() if sha not in wanted)
    if quota is not None:
        used = bytes_text(sums.used_bytes)
        yield f"quota: {bytes_text(quota)}, and with the files to fetch {used} are used"
    if floor:
        yield f"to stay free on the disk: {bytes_text(floor)}"
    if others:
        yield f"promised to other processes: {bytes_text(others)}"


def _held_in_words(
    word: str, held: Mapping[str, tuple[str, ...]], wanted: Mapping[str, int], state: CacheState
) -> Iterator[str]:
    here = [sha for sha in held if sha in state.blobs and sha not in wanted]
    here.sort(key=lambda sha: (-state.blobs[sha].size, sha))
    if not here:
        return
    yield f"{word}: {bytes_text(sum(state.blobs[sha].size for sha in here))}"
    for sha in here[:_SHOWN]:
        blob = state.blobs[sha]
        yield f"  {blob.name} ({bytes_text(blob.size)}): {', '.join(held[sha])}"
    if len(here) > _SHOWN:
        yield f"  and {len(here) - _SHOWN} more"


def _remedies(wanted: Mapping[str, int], state: CacheState, sums: _Sum, freed_bytes: int) -> Iterator[str]:
    quota, floor = state.bounds
    if any(sha in state.blobs and sha not in wanted for sha in state.pins):
        yield "unpin files (comfyfarm cache unpin)"
    if any(sha not in wanted for sha in state.in_use):
        yield "wait until the others are done"
    if quota is not None and sums.used_bytes - freed_bytes > quota:
        yield "raise the quota (COMFYFARM_CACHE_QUOTA_GB)"
    if sums.left_bytes + freed_bytes < 0 or sums.left_bytes + freed_bytes < floor:
        if sums.left_bytes + freed_bytes >= 0:
            yield "let less stay free (COMFYFARM_CACHE_FREE_GB)"
        yield "make room there, or give --cache on a larger disk"
