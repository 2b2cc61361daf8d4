"""What is written into the index, as work within one transaction."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence


def write_notes(
    db: sqlite3.Connection,
    here: Mapping[str, int],
    now: float,
    *,
    hits: int,
    fetched: Mapping[str, int],
    source: str,
) -> None:
    """What was used at this Unix time in seconds, and is here: sizes by SHA-256.

    Args:
        db: the index.
        here: all of it.
        now: when.
        hits: how many of them nobody had to fetch.
        fetched: bytes that came from `source`, by SHA-256 of files that had to come.
        source: a kind of place.
    """
    for sha, size in here.items():
        note_use(db, sha, size, now, source=source if sha in fetched else "")
    count(db, "hits", hits)
    count(db, "misses", len(fetched))
    count(db, "fetched_bytes", sum(fetched.values()), source=source)


def note_use(db: sqlite3.Connection, sha256: str, size: int, now: float, *, source: str = "") -> None:
    """A blob that is here was used, or has come from a source, at this Unix time in seconds."""
    db.execute(
        "INSERT INTO uses VALUES (?, ?, ?, ?, ?) ON CONFLICT (sha256) DO UPDATE SET size = excluded.size, "
        "last_used = max(last_used, excluded.last_used), "
        "source = CASE excluded.source WHEN '' THEN source ELSE excluded.source END",
        (sha256, size, now, now, source),
    )


def count(db: sqlite3.Connection, name: str, by: int, *, source: str = "") -> None:
    """Move a counter on."""
    if by:
        db.execute(
            "INSERT INTO counters VALUES (?, ?, ?) "
            "ON CONFLICT (name, source) DO UPDATE SET value = value + excluded.value",
            (name, source, by),
        )


def forget_blobs(db: sqlite3.Connection, shas: Iterable[str]) -> None:
    """Evicted blobs: their uses and links. Pins stay."""
    rows = [(sha,) for sha in shas]
    db.executemany("DELETE FROM uses WHERE sha256 = ?", rows)
    db.executemany("DELETE FROM links WHERE sha256 = ?", rows)


def remove_pins(db: sqlite3.Connection, who: str | None, shas: Sequence[str] | None) -> tuple[str, ...]:
    """Take away somebody's pins (None: everybody's) of these files (None: of all); whose there were."""
    found = db.execute("SELECT sha256, who FROM pins ORDER BY since, sha256").fetchall()
    gone = [
        (sha, owner)
        for sha, owner in found
        if (who is None or owner == who) and (shas is None or sha in shas)
    ]
    db.executemany("DELETE FROM pins WHERE sha256 = ? AND who = ?", gone)
    return tuple(dict.fromkeys(sha for sha, _ in gone))
