"""Farm-wide locks: one holder of a name at a time, freed by the system when the holder dies."""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from comfyfarm.ledger.database import FOREIGN, Database
from comfyfarm.ledger.postgresql import PostgresqlStore
from comfyfarm.ledger.sqlite import SqliteStore

_POLL_S = 0.02


class Locks(Database):
    """The part of the ledger by which processes take turns."""

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        """Hold the lock `name` of this ledger; wait for it as long as it takes.

        PostgreSQL keeps an advisory lock for the connection, so a dead holder's is free at once.
        A SQLite file has users on one machine only: there it is a file lock beside it.

        Raises:
            LedgerError: the database did not answer.
        """
        if isinstance(self._store, SqliteStore):
            async with self._file_lock(name):
                yield
            return
        async with self._advisory_lock(self._store, name):
            yield

    @asynccontextmanager
    async def _file_lock(self, name: str) -> AsyncIterator[None]:
        path = Path(f"{self.url.database}.{_key(name):x}.lock")
        # Never removed: a waiter may have it open already.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _is_locked_now(file):
                await self._clock.sleep(_POLL_S)
            yield
        finally:
            os.close(file)

    @asynccontextmanager
    async def _advisory_lock(self, store: PostgresqlStore, name: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(store.advisory_lock(_key(name)))
            except FOREIGN as exc:
                raise self._wrapped(exc) from exc
            yield


def _key(name: str) -> int:
    """A signed 63-bit number for a name, other than the migrations' own."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


def _is_locked_now(file: int) -> bool:
    import fcntl  # Not on Windows, where all else of the ledger works.

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
