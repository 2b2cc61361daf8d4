"""SQLite behind the ledger: whole transactions run in threads, one writer at a time.

An asynchronous driver would change threads for each statement: ten times as often, for nothing.
Writes that wait for their turn are committed together: one wait for the disk, one change of threads.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event

from comfyfarm.ledger.group import Waiting, Work, deliver

T = TypeVar("T")

_BUSY_TIMEOUT_S = 30.0
"""For other processes' transactions; those of this process wait for their turn without asking."""
_READERS = 2
_GROUP = 64
"""Writes in one commit, at most."""


class SqliteStore:
    """Runs work on a SQLite file."""

    def __init__(self, url: URL) -> None:
        self._connections = _Connections(url)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger-read")
        self._waiting = Waiting()

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one state of the file."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction. When the caller is cancelled, what has begun is finished all the same.

        The transaction may hold other callers' work, too: each is kept or dropped by itself.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._waiting.add(Work(work, future)):
            self._writer.submit(self._write_what_waits)
        return await future

    async def bare(self, work: Callable[[Any], T]) -> T:
        """Run `work` on the driver's own connection, outside any transaction."""

        def run() -> T:
            return work(self._connections.mine()[1])

        return await asyncio.get_running_loop().run_in_executor(self._writer, run)

    async def close(self) -> None:
        """Let what runs finish, and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        self._connections.close()

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._connections.transaction("BEGIN") as connection:
            return work(connection)

    def _write_what_waits(self) -> None:
        while group := self._waiting.next(_GROUP):
            deliver(group, self._written(group))

    def _written(self, group: Sequence[Work]) -> list[Any]:
        """What each returned or raised."""
        try:
            return self._write(group)
        except Exception as exc:  # noqa: BLE001 - the top of the writer's loop: handed whole to whoever waits
            if len(group) == 1:
                return [exc]
        # Seldom: a claim was stale. Nothing of the group was kept: alone, each succeeds or fails for itself.
        return [self._written([one])[0] for one in group]

    def _write(self, group: Sequence[Work]) -> list[Any]:
        # A reader that turns writer fails at once when another wrote in between: take the lock first.
        with self._connections.transaction("BEGIN IMMEDIATE") as connection:
            return [one.work(connection) for one in group]


class _Connections:
    """One connection for each thread, kept open: getting one anew costs as much as a small read."""

    def __init__(self, url: URL) -> None:
        self._engine: Engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(self._engine, "connect", _set_up)
        self._own = threading.local()
        self._all: list[Connection] = []

    def mine(self) -> tuple[Connection, sqlite3.Connection]:
        """This thread's connection, and the driver's below it."""
        found: tuple[Connection, sqlite3.Connection] | None = getattr(self._own, "found", None)
        if found is None:
            connection = self._engine.connect()
            self._all.append(connection)
            # For SQLAlchemy it is one transaction that never ends; we say BEGIN and COMMIT ourselves.
            connection.begin()
            driver: Any = connection.connection.driver_connection
            found = self._own.found = (connection, driver)
        return found

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Connection]:
        """A transaction on this thread's connection, kept when the block ends and dropped when it raises."""
        connection, driver = self.mine()
        driver.execute(begin)
        try:
            yield connection
            driver.execute("COMMIT")
        finally:
            if driver.in_transaction:
                driver.execute("ROLLBACK")

    def close(self) -> None:
        """Close all; the threads must have ended."""
        for connection in self._all:
            connection.close()
        self._engine.dispose()


def _set_up(connection: Any, _record: object) -> None:
    # We begin transactions ourselves: Python's driver would begin late, and never IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
