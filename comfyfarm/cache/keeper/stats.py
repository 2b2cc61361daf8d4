"""A cache in figures: for people, for programs, and as Prometheus reads them."""

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.quarantine import REASON_SUFFIX


class CacheStats(BaseModel):
    """Figures of one cache. Counters go on for as long as its index lives."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: NonNegativeInt
    bytes: NonNegativeInt
    """Of all blobs."""
    pinned_bytes: NonNegativeInt
    pinned_files: NonNegativeInt
    """That are here."""
    in_use_bytes: NonNegativeInt
    in_use_files: NonNegativeInt
    """That are here."""
    partial_bytes: NonNegativeInt
    """Of transfers that run, or can go on."""
    partial_files: NonNegativeInt
    promised_bytes: NonNegativeInt
    """Of files that leases wait for."""
    quarantined_bytes: NonNegativeInt
    quarantined_files: NonNegativeInt
    """Without the reasons beside them."""
    quota_bytes: NonNegativeInt | None
    keep_free_bytes: NonNegativeInt
    free_bytes: NonNegativeInt
    """On the disk."""
    hits: NonNegativeInt
    misses: NonNegativeInt
    fetched_bytes: Mapping[str, NonNegativeInt]
    """By the kind of source."""
    evictions: NonNegativeInt
    evicted_bytes: NonNegativeInt


def read_stats(keeper: Keeper) -> CacheStats:
    """The figures as they are now; nothing is changed."""
    state, known = keeper.look()
    sizes = {sha: blob.size for sha, blob in state.blobs.items()}
    counters = known.counters
    return CacheStats(
        files=len(sizes),
        bytes=sum(sizes.values()),
        pinned_bytes=_sum(sizes, state.pins),
        pinned_files=len(sizes.keys() & state.pins),
        in_use_bytes=_sum(sizes, state.in_use),
        in_use_files=len(sizes.keys() & state.in_use),
        partial_bytes=sum(state.partial.values()),
        partial_files=len(state.partial),
        promised_bytes=sum(state.promised.values()),
        quarantined_bytes=sum(state.quarantined.values()),
        quarantined_files=sum(not name.endswith(REASON_SUFFIX) for name in state.quarantined),
        quota_bytes=state.bounds.quota_bytes,
        keep_free_bytes=state.bounds.free_bytes,
        free_bytes=state.disk_free_bytes,
        hits=counters.get(("hits", ""), 0),
        misses=counters.get(("misses", ""), 0),
        fetched_bytes={
            source: n for (name, source), n in sorted(counters.items()) if name == "fetched_bytes"
        },
        evictions=counters.get(("evictions", ""), 0),
        evicted_bytes=counters.get(("evicted_bytes", ""), 0),
    )


def prometheus(stats: CacheStats) -> str:
    """The figures as Prometheus reads them.

    Source: text format 0.0.4 in Prometheus' documentation, "Exposition formats".
    """
    quota = float("inf") if stats.quota_bytes is None else stats.quota_bytes
    lines = [
        *_metric("hits_total", "counter", "Files that were here when they were needed.", stats.hits),
        *_metric("misses_total", "counter", "Files that had to be fetched.", stats.misses),
        *_metric("fetched_bytes_total", "counter", "Bytes fetched, by kind of source.", stats.fetched_bytes),
        *_metric("evictions_total", "counter", "Files evicted.", stats.evictions),
        *_metric("evicted_bytes_total", "counter", "Bytes evicted.", stats.evicted_bytes),
        *_metric("bytes", "gauge", "Bytes of all files here.", stats.bytes),
        *_metric("files", "gauge", "Files here.", stats.files),
        *_metric("pinned_bytes", "gauge", "Bytes of files here that are pinned.", stats.pinned_bytes),
        *_metric("pinned_files", "gauge", "Files here that are pinned.", stats.pinned_files),
        *_metric("in_use_bytes", "gauge", "Bytes of files here that a process needs.", stats.in_use_bytes),
        *_metric("in_use_files", "gauge", "Files here that a process needs.", stats.in_use_files),
        *_metric("partial_bytes", "gauge", "Bytes on disk of transfers under way.", stats.partial_bytes),
        *_metric("partial_files", "gauge", "Transfers that run, or can go on.", stats.partial_files),
        *_metric("quarantined_bytes", "gauge", "Bytes in quarantine.", stats.quarantined_bytes),
        *_metric("quarantined_files", "gauge", "Files in quarantine.", stats.quarantined_files),
        *_metric("quota_bytes", "gauge", "Bytes that the cache may take.", quota),
        *_metric("free_bytes", "gauge", "Bytes free on the disk of the cache.", stats.free_bytes),
    ]
    return "\n".join(lines) + "\n"


def _sum(sizes: Mapping[str, int], shas: Iterable[str]) -> int:
    return sum(sizes.get(sha, 0) for sha in shas)


def _metric(name: str, kind: str, told: str, value: float | Mapping[str, int]) -> Iterator[str]:
    full = f"comfyfarm_cache_{name}"
    yield f"# HELP {full} {told}"
    yield f"# TYPE {full} {kind}"
    if isinstance(value, Mapping):
        yield from (f'{full}{{source="{_escaped(source)}"}} {count}' for source, count in value.items())
    else:
        yield f"{full} {'+Inf' if value == float('inf') else value}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
