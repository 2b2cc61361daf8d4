"""One way to reach the ledger's database: short transactions, repeated when the connection is lost."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import LedgerError, UsageError
from comfyfarm.ledger.address import bad_address, parse_address, shown

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_DELAYS_S = (0.1, 0.3, 1.0, 3.0)
"""A restart of PostgreSQL takes about a second."""
_BUSY_TIMEOUT_S = 30.0
_WRITE = "comfyfarm_write"
_FOREIGN = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
# Shutting down or starting up, too many clients, serialization failure, deadlock: nothing was kept.
_PASSING_STATES = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01"})
# No such database, wrong password, no such role, no right to connect.
_SETUP_STATES = frozenset({"3D000", "28P01", "28000", "42501"})


class Database:
    """The engine behind the ledger. Every part of `Ledger` is one of these.

    A transaction whose connection broke is repeated: each write either changes nothing the second
    time, or (`begin_attempt`, `take`) leaves only what a lease or the next attempt cleans up.
    """

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self.url: URL = parse_address(address)
        self.shown = shown(address)
        self._clock: Clock = clock or SystemClock()
        self._engine = _engine(self.url)
        self._writer = self._engine.execution_options(**{_WRITE: True})
        # SQLite has one writer: waiting here costs nothing, waiting in its busy handler up to 0.1 s.
        self._turn = asyncio.Semaphore(1 if self.is_sqlite else 8)

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is a SQLite file."""
        return self.url.drivername.startswith("sqlite")

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    async def _read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` on a connection.

        Raises:
            LedgerError: the database did not answer.
        """

        async def once() -> T:
            async with self._engine.connect() as connection:
                return await work(connection)

        return await self._repeated(once)

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Run `work` in a transaction, kept when it returns and dropped when it raises.

        Raises:
            LedgerError: the database did not answer.
        """

        async def once() -> T:
            async with self._turn, self._writer.begin() as connection:
                return await work(connection)

        return await self._repeated(once)

    async def _repeated(self, once: Callable[[], Awaitable[T]]) -> T:
        for delay_s in _RETRY_DELAYS_S:
            try:
                return await once()
            except _FOREIGN as exc:
                if not _is_passing(exc):
                    raise self._wrapped(exc) from exc
                logger.warning("ledger %s: %s; again in %.1f s", self.shown, type(exc).__name__, delay_s)
            await self._clock.sleep(delay_s)
        try:
            return await once()
        except _FOREIGN as exc:
            raise self._wrapped(exc) from exc

    def _wrapped(self, exc: BaseException) -> LedgerError | UsageError:
        cause = _cause(exc)
        first_line = (str(cause) or type(cause).__name__).splitlines()[0]
        if _state(exc) in _SETUP_STATES or _is_bad_file(cause):
            return bad_address(self.shown, first_line)
        return LedgerError(f"ledger {self.shown}: {first_line}")


def _engine(url: URL) -> AsyncEngine:
    if not url.drivername.startswith("sqlite"):
        return create_async_engine(url, pool_size=4, max_overflow=8, pool_timeout=_BUSY_TIMEOUT_S)
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
    event.listen(engine.sync_engine, "connect", _set_up_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # We begin transactions ourselves: Python's driver would begin late, and never IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    # A reader that turns writer fails at once when another wrote in between: take the lock first.
    is_write = connection.get_execution_options().get(_WRITE)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _cause(exc: BaseException) -> BaseException:
    """The driver's own error below SQLAlchemy's wrappings."""
    if isinstance(exc, DBAPIError) and exc.orig is not None:
        return exc.orig.__cause__ or exc.orig
    return exc


def _state(exc: BaseException) -> str:
    return getattr(_cause(exc), "sqlstate", None) or ""


def _is_passing(exc: BaseException) -> bool:
    """Whether the same transaction may succeed in a moment."""
    if isinstance(exc, DBAPIError) and exc.connection_invalidated:
        return True
    state = _state(exc)
    return isinstance(exc, OSError | TimeoutError) or state in _PASSING_STATES or state.startswith("08")


def _is_bad_file(cause: BaseException) -> bool:
    text = str(cause)
    return isinstance(cause, sqlite3.Error) and any(
        word in text for word in ("unable to open", "not a database", "readonly")
    )
