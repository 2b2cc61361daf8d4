"""The files of a cache as a table, and its figures in words."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from comfyfarm.cache.keeper.entries import Entry
from comfyfarm.cache.keeper.stats import CacheStats
from comfyfarm.plan.host_plan import bytes_text


def print_entries(entries: Sequence[Entry]) -> None:
    """One line for each file and each of its names."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("sha256", "name", "folder", "size", "last use", "pinned", "in use"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        titles = [name.partition("/") for name in entry.names]
        table.add_row(
            entry.sha256[:12],
            "\n".join(path or folder for folder, _, path in titles),
            "\n".join(folder if path else "" for folder, _, path in titles),
            "not here" if entry.size is None else bytes_text(entry.size),
            "" if entry.last_used is None else time_text(entry.last_used),
            shortened("\n".join(entry.pinned)),
            shortened("\n".join(entry.in_use)),
        )
    Console(width=None if Console().is_terminal else 200, markup=False).print(table)


def shortened(text: str) -> str:
    """With the first 12 digits of each SHA-256: enough for people, and for `unpin --lock`."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1", text)


def print_stats(stats: CacheStats) -> None:
    """A line for each figure."""
    quota = "none" if stats.quota_bytes is None else bytes_text(stats.quota_bytes)
    fetched = ", ".join(f"{bytes_text(n)} from {place or '?'}" for place, n in stats.fetched_bytes.items())
    for word, told in (
        ("files", f"{stats.files} ({bytes_text(stats.bytes)})"),
        ("pinned", bytes_text(stats.pinned_bytes)),
        ("in use", bytes_text(stats.in_use_bytes)),
        ("on the way", f"{bytes_text(stats.partial_bytes)}; {bytes_text(stats.promised_bytes)} promised"),
        ("quarantined", bytes_text(stats.quarantined_bytes)),
        ("quota", quota),
        ("disk", f"{bytes_text(stats.free_bytes)} free, {bytes_text(stats.keep_free_bytes)} to stay so"),
        ("hits", str(stats.hits)),
        ("misses", f"{stats.misses} ({fetched})" if fetched else str(stats.misses)),
        ("evictions", f"{stats.evictions} ({bytes_text(stats.evicted_bytes)})"),
    ):
        click.echo(f"{word:12} {told}")


def time_text(unix_s: float) -> str:
    """A Unix time in seconds for people, in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
