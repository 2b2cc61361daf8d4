"""What the index of a cache tells: uses, pins, links and counters, as one snapshot."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from comfyfarm.cache.blobs import blob_key

_Row = TypeVar("_Row")

VERSION = 1
_LATEST_S = 253402300800.0
"""The year 10000 as Unix time: no later moment can be told to people."""
SCHEMA = (
    "CREATE TABLE uses (sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, first_seen REAL NOT NULL, "
    "last_used REAL NOT NULL, source TEXT NOT NULL)",
    "CREATE TABLE pins (sha256 TEXT NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL, name TEXT NOT NULL, "
    "since REAL NOT NULL, PRIMARY KEY (sha256, who))",
    # A path may have pointed to several blobs: what it points to now is looked up on the disk.
    "CREATE TABLE links (path BLOB NOT NULL, sha256 TEXT NOT NULL, folder TEXT NOT NULL, name TEXT NOT NULL, "
    "PRIMARY KEY (path, sha256))",
    "CREATE TABLE counters (name TEXT NOT NULL, source TEXT NOT NULL, value INTEGER NOT NULL, "
    "PRIMARY KEY (name, source))",
    f"PRAGMA user_version = {VERSION}",
)


class Use(NamedTuple):
    """How a blob was used. Times are Unix times in seconds."""

    size: int
    first_seen: float
    last_used: float
    source: str
    """Kind of place that it came from; empty where that is not known."""


class Pin(NamedTuple):
    """Why a file is never evicted, be it here or not."""

    who: str
    """`hand`, or `lock <digest>`."""
    why: str
    name: str
    since: float

    @property
    def words(self) -> str:
        """For people."""
        return f"by {self.who}" + (f" ({self.why})" if self.why else "")


class Link(NamedTuple):
    """A name that we gave a blob, at least once."""

    path: Path
    folder: str
    """Key of ComfyUI's models folder."""
    name: str
    """Path inside that folder, with `/` separators."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


class Known(NamedTuple):
    """All that an index holds, by SHA-256."""

    uses: Mapping[str, Use] = {}
    pins: Mapping[str, tuple[Pin, ...]] = {}
    links: Mapping[str, tuple[Link, ...]] = {}
    counters: Mapping[tuple[str, str], int] = {}
    """By name and source."""
    is_complete: bool = True
    """Whether nothing can be pinned that is not told here."""

    def names(self, sha256: str) -> tuple[str, ...]:
        """`folder/path` of a blob, each once."""
        titles = [link.title for link in self.links.get(sha256, ())]
        return tuple(dict.fromkeys([*titles, *(pin.name for pin in self.pins.get(sha256, ()) if pin.name)]))


def read_known(db: sqlite3.Connection) -> Known:
    """Read everything in one transaction.

    Raises:
        sqlite3.Error: it cannot be read, or holds what is never written into it.
    """
    db.execute("BEGIN")
    uses = {sha: Use(*rest) for sha, *rest in _rows(
        db, "SELECT sha256, size, first_seen, last_used, source FROM uses",
        (_is_text, _is_count, _is_time, _is_time, _is_text))}  # fmt: skip
    counters = {(name, source): value for name, source, value in _rows(
        db, "SELECT name, source, value FROM counters", (_is_text, _is_text, _is_count))}  # fmt: skip
    pins = sorted(read_pins(db), key=lambda row: (row[1].since, row[1].who))
    links = sorted(read_links(db), key=lambda row: row[1].path)
    known = Known(uses, together(pins), together(links), counters)
    db.execute("COMMIT")
    return known


def read_pins(db: sqlite3.Connection, *, skips: bool = False) -> Iterator[tuple[str, Pin]]:
    """Pins by SHA-256, unsorted: so that of a torn table the first ones can be read.

    `skips`: those that are not as they are written, instead of ending there.
    """
    query = "SELECT sha256, who, why, name, since FROM pins"
    for sha, *rest in _rows(db, query, (*[_is_text] * 4, _is_time), skips=skips):
        yield sha, Pin(*rest)


def read_links(db: sqlite3.Connection, *, skips: bool = False) -> Iterator[tuple[str, Link]]:
    """Links by SHA-256, likewise."""
    query = "SELECT sha256, path, folder, name FROM links"
    for sha, path, folder, name in _rows(db, query, (_is_text, _is_path, _is_text, _is_text), skips=skips):
        yield sha, Link(Path(os.fsdecode(path)), folder, name)


def is_pin(pin: Pin) -> bool:
    """Whether a pin that was read is as they are written."""
    return all(map(_is_text, pin[:3])) and _is_time(pin.since)


def _rows(
    db: sqlite3.Connection, query: str, columns: Sequence[Callable[[Any], bool]], *, skips: bool = False
) -> Iterator[tuple[Any, ...]]:
    for row in db.execute(query):
        if all(fits(value) for fits, value in zip(columns, row, strict=True)):
            yield row
        elif not skips:
            raise sqlite3.DatabaseError("a row of another kind than is written here")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LATEST_S


def _is_path(value: Any) -> bool:
    return isinstance(value, bytes) and b"\0" not in value


def write_pins(db: sqlite3.Connection, pins: Iterable[tuple[str, Pin]]) -> None:
    """Add pins; one of the same sort is replaced."""
    db.executemany("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?)", [(sha, *pin) for sha, pin in pins])


def write_links(db: sqlite3.Connection, links: Iterable[tuple[str, Link]]) -> None:
    """Add links."""
    rows = [(os.fsencode(link.path), sha, link.folder, link.name) for sha, link in links]
    db.executemany("INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?)", rows)


def links_in_views(root: Path) -> Iterator[tuple[str, Link]]:
    """The links in a cache's views, as they lie on the disk."""
    for folder, _, names in os.walk(root / "views"):
        for path in (Path(folder, name) for name in names):
            target = path.readlink() if path.is_symlink() else path
            inside = path.relative_to(root / "views").parts
            if len(target.name) == 64 and target == root / blob_key(target.name) and len(inside) > 2:
                yield target.name, Link(path, inside[1], "/".join(inside[2:]))


def together(rows: Iterable[tuple[str, _Row]]) -> dict[str, tuple[_Row, ...]]:
    """Rows by their SHA-256, in their order."""
    found: dict[str, tuple[_Row, ...]] = {}
    for sha, row in rows:
        found[sha] = (*found.get(sha, ()), row)
    return found
