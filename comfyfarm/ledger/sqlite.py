"""SQLite behind the ledger: whole transactions run in threads, one writer at a time.

An asynchronous driver would change threads for each statement: ten times as often, for nothing.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, create_engine, event

T = TypeVar("T")

_BUSY_TIMEOUT_S = 30.0
"""For other processes' transactions; those of this process wait for their turn without asking."""
_READERS = 2
_WRITE = "comfyfarm_write"


class SqliteStore:
    """Runs work on a SQLite file."""

    def __init__(self, url: URL) -> None:
        self._engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(self._engine, "connect", _set_up)
        event.listen(self._engine, "begin", _begin)
        self._writing = self._engine.execution_options(**{_WRITE: True})
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="ledger-write")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ledger-read")

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one state of the file."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction. When the caller is cancelled, it is finished all the same."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._write, work)

    async def bare(self, work: Callable[[Any], T]) -> T:
        """Run `work` on the driver's own connection, outside any transaction."""

        def run() -> T:
            with self._engine.connect() as connection:
                return work(connection.connection)

        return await asyncio.get_running_loop().run_in_executor(self._writer, run)

    async def close(self) -> None:
        """Let what runs finish, and close the file."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        self._engine.dispose()

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._writing.begin() as connection:
            return work(connection)


def _set_up(connection: Any, _record: object) -> None:
    # We begin transactions ourselves: Python's driver would begin late, and never IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    # A reader that turns writer fails at once when another wrote in between: take the lock first.
    is_write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")
