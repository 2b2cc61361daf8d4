"""PostgreSQL behind the ledger: a small pool of asyncpg connections."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sqlalchemy import URL, Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

T = TypeVar("T")

_POOL = 4
_OVERFLOW = 8
_WAIT_S = 30.0


class PostgresqlStore:
    """Runs work on a PostgreSQL database."""

    def __init__(self, url: URL) -> None:
        self._engine = create_async_engine(url, pool_size=_POOL, max_overflow=_OVERFLOW, pool_timeout=_WAIT_S)
        # Some connections stay free for holders of locks, who use a second one.
        self._turn = asyncio.Semaphore(_OVERFLOW)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection."""
        async with self._turn, self._engine.connect() as connection:
            return await connection.run_sync(work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction, kept when it returns and dropped when it raises."""
        async with self._turn, self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    @asynccontextmanager
    async def advisory_lock(self, key: int) -> AsyncIterator[None]:
        """Hold the lock `key` of this database on a connection of its own."""
        async with self._engine.connect() as connection:
            try:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})
                yield
            finally:
                # The lock is the connection's: closing that for good frees it, whatever happened.
                await connection.invalidate()
