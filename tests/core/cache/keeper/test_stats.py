"""Figures of a cache, and what Prometheus reads."""

from collections.abc import Callable
from typing import Any

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.stats import prometheus, read_stats

Put = Callable[..., Any]
Keep = Callable[..., Keeper]


def test_the_figures_are_those_of_what_happened(put: Put, keep: Keep, blob: Callable[..., Any]) -> None:
    a, b = put("a"), put("b", size=500)
    keeper = keep(5000, free=7)
    keeper.pin({a.sha256: ""}, who="hand")
    keeper.note(hits=[a.sha256, b.sha256])
    keeper.note(fetched={b.sha256: 500}, source="mirror")
    keeper.evict([put("c").sha256])

    with keeper.hold([b, blob("new", size=300)]):
        stats = read_stats(keeper)

    told = stats.model_dump(exclude={"free_bytes"})
    assert told == {
        "files": 2, "bytes": 1500, "pinned_bytes": 1000, "in_use_bytes": 500, "partial_bytes": 0,
        "pinned_files": 1, "in_use_files": 1, "partial_files": 0, "quarantined_files": 0,
        "promised_bytes": 300, "quarantined_bytes": 0, "quota_bytes": 5000, "keep_free_bytes": 7,
        "hits": 2, "misses": 1, "fetched_bytes": {"mirror": 500}, "evictions": 1, "evicted_bytes": 1000,
    }  # fmt: skip
    assert stats.free_bytes > 0


def test_prometheus_reads_one_line_for_each_figure(put: Put, keep: Keep, blobs: BlobStore) -> None:
    model = put("a")
    keep().pin({model.sha256: "", "ab" * 32: ""}, who="hand")
    blobs.quarantine(put("wrong").sha256, reason="wrong")
    rest = blobs.partial("cd" * 32)
    rest.mkdir(parents=True)
    (rest / "data").write_bytes(b"x" * 10)
    keep().note(hits=[model.sha256], fetched={model.sha256: 900}, source='a "b"\\')

    lines = prometheus(read_stats(keep())).splitlines()

    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values.pop("comfyfarm_cache_free_bytes").isdigit()
    assert int(values.pop("comfyfarm_cache_quarantined_bytes")) >= 1000  # the reason beside it, too
    assert values == {
        "comfyfarm_cache_hits_total": "1",
        "comfyfarm_cache_misses_total": "1",
        'comfyfarm_cache_fetched_bytes_total{source="a \\"b\\"\\\\"}': "900",
        "comfyfarm_cache_evictions_total": "0",
        "comfyfarm_cache_evicted_bytes_total": "0",
        "comfyfarm_cache_bytes": "1000",
        "comfyfarm_cache_files": "1",
        "comfyfarm_cache_pinned_bytes": "1000",
        "comfyfarm_cache_pinned_files": "1",
        "comfyfarm_cache_in_use_bytes": "0",
        "comfyfarm_cache_in_use_files": "0",
        "comfyfarm_cache_partial_bytes": "10",
        "comfyfarm_cache_partial_files": "1",
        "comfyfarm_cache_quarantined_files": "1",
        "comfyfarm_cache_quota_bytes": "+Inf",
    }
    assert sum(line.startswith("# TYPE comfyfarm_cache_") for line in lines) == 17
