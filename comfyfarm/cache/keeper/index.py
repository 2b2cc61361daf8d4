"""`index.db`: what a cache remembers besides its blobs. Losing it costs memory, never a file.

One short connection for each call: any number of threads and processes, none of them waiting for long.
"""

import contextlib
import errno
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.keeper.cache_lock import cache_lock
from comfyfarm.cache.keeper.known import (
    SCHEMA,
    VERSION,
    Known,
    Link,
    Pin,
    links_in_views,
    read_known,
    read_links,
    read_pins,
    together,
    write_links,
    write_pins,
)
from comfyfarm.cache.keeper.pins_copy import broken, put_aside, read_copy

_log = logging.getLogger(__name__)

BUSY_S = 10.0
_PRIMARY = 0xFF  # an extended code of SQLite holds the primary one in its last byte
_ERRNO = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
}
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""The last: tables that are not ours."""

Work = Callable[[sqlite3.Connection], None]


class Index:
    """The index of the cache under `root`. One that is missing or broken is made anew from the disk."""

    def __init__(self, root: Path, *, disk: Disk = SYSTEM_DISK) -> None:
        """Nothing is opened yet."""
        self._root = root
        self._disk = disk
        self.path = root / "index.db"
        self._has_told = False

    def read(self) -> Known:
        """All that it holds; where it cannot be read, what the disk says, marked as not complete."""
        known = self._found()
        lost = broken(self._root)
        if os.path.lexists(lost):
            known = known._replace(is_complete=False)
        elif known.is_complete or self.path.exists():
            return known
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "%s: who pinned what is not known any more, and nothing is evicted: pin anew what is to stay "
                "(comfyfarm cache pin), then remove %s; if nothing is to stay, remove pins.json as well",
                self._root, lost,
            )  # fmt: skip
        return known

    def _found(self) -> Known:
        if not self.path.exists():
            return self._from_disk(is_complete=True)
        for _ in range(2):
            try:
                return self._read()
            except sqlite3.Error as exc:
                if not _is_broken(exc) or not self._repaired():
                    _log.warning("%s cannot be read: %s", self.path, exc)
                    break
        return self._from_disk(is_complete=False)

    def _read(self) -> Known:
        try:
            # Writable where it can be: what a killed process left half done has to be rolled back first.
            return _known(self.path, "rw")
        except sqlite3.Error as exc:
            if _as_os_error(exc, self.path).errno not in {errno.EROFS, errno.EACCES}:
                raise
            return _known(self.path, "ro")

    def _from_disk(self, *, is_complete: bool) -> Known:
        copy = read_copy(self._root)
        return Known(
            pins=together(copy or ()),
            links=together(links_in_views(self._root)),
            is_complete=is_complete and copy is not None,
        )

    def change(self, work: Work) -> None:
        """One transaction: all of it, or nothing.

        Raises:
            OSError: it cannot be written, or another process has it for too long.
        """
        try:
            self._transact(work)
        except sqlite3.Error as exc:
            if not _is_broken(exc):
                raise _as_os_error(exc, self.path) from exc
            self._repair()
            try:
                self._transact(work)
            except sqlite3.Error as again:
                raise _as_os_error(again, self.path) from again

    def _transact(self, work: Work) -> None:
        self._disk.step("index", self.path)
        if not self._root.is_dir():
            self._disk.make_folder(self._root)
        with contextlib.closing(_connect(self.path, "rwc")) as db:
            db.execute("BEGIN IMMEDIATE")
            if not _version(db):
                for statement in SCHEMA:
                    db.execute(statement)
                write_links(db, links_in_views(self._root))
                self._take_over_pins(db)
            _refuse_other_version(db)
            work(db)
            self._disk.step("index_commit", self.path)
            db.execute("COMMIT")

    def _take_over_pins(self, db: sqlite3.Connection) -> None:
        copy = read_copy(self._root)
        if copy is None:
            # Before the index says that nothing is pinned.
            put_aside(self._root, disk=self._disk)
        write_pins(db, copy or ())

    def _repaired(self) -> bool:
        try:
            self._repair()
        except OSError:
            return False
        return True

    def _repair(self) -> None:
        """Put the broken file aside, and begin a new one with what can be read of its pins and links."""
        with cache_lock(self._root, disk=self._disk, name="repair"):
            if _is_whole(self.path):  # another process was first
                return
            pins, links = _salvaged(self.path)
            # A journal of the broken one would be played back into the new one.
            for ending in ("-journal", "-wal", "-shm"):
                self._disk.unlink(self.path.with_name(self.path.name + ending))
            self._disk.rename(self.path, self.path.with_name("index.db.broken"))
            try:
                self._transact(lambda db: _put_back(db, pins, links))
            except sqlite3.Error as exc:
                raise _as_os_error(exc, self.path) from exc
        _log.warning(
            "%s was broken, and is made anew; %d pins and %d links could be read, the rest lies in %s",
            self.path, len(pins), len(links), "index.db.broken",
        )  # fmt: skip


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Quoted by hand: a path may hold bytes that are no UTF-8.
    quoted = os.fsencode(path).replace(b"%", b"%25").replace(b"?", b"%3f").replace(b"#", b"%23")
    address = b"file:" + quoted + b"?mode=" + mode.encode()
    return sqlite3.connect(os.fsdecode(address), uri=True, timeout=BUSY_S, isolation_level=None)


def _known(path: Path, mode: str) -> Known:
    with contextlib.closing(_connect(path, mode)) as db:
        _refuse_other_version(db)
        return read_known(db)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _refuse_other_version(db: sqlite3.Connection) -> None:
    if _version(db) != VERSION:
        raise sqlite3.DatabaseError(f"version {_version(db)} instead of {VERSION}")


def _is_whole(path: Path) -> bool:
    try:
        with contextlib.closing(_connect(path, "rw")) as db:
            _refuse_other_version(db)
            read_known(db)
            return bool(db.execute("PRAGMA quick_check").fetchone()[0] == "ok")
    except sqlite3.Error:
        return False


def _salvaged(path: Path) -> tuple[list[tuple[str, Pin]], list[tuple[str, Link]]]:
    pins: list[tuple[str, Pin]] = []
    links: list[tuple[str, Link]] = []
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(path, "ro")) as db:
        with contextlib.suppress(sqlite3.Error):
            pins.extend(read_pins(db, skips=True))
        links.extend(read_links(db, skips=True))
    return pins, links


def _put_back(db: sqlite3.Connection, pins: list[tuple[str, Pin]], links: list[tuple[str, Link]]) -> None:
    write_pins(db, pins)
    write_links(db, links)


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & _PRIMARY in _BROKEN


def _as_os_error(error: sqlite3.Error, path: Path) -> OSError:
    code = _ERRNO.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY, errno.EIO)
    return OSError(code, f"{os.strerror(code)} ({error})", str(path))
