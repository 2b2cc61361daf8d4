"""One way to reach the ledger's database: short transactions, repeated when the connection is lost."""

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import LedgerError, UsageError
from comfyfarm.ledger.address import bad_address, parse_address, shown
from comfyfarm.ledger.postgresql import PostgresqlStore
from comfyfarm.ledger.sqlite import SqliteStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_DELAYS_S = (0.1, 0.3, 1.0, 3.0)
"""A restart of PostgreSQL takes about a second."""
FOREIGN = (
    SQLAlchemyError,
    sqlite3.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)
"""What the libraries below raise."""
# Shutting down or starting up, too many clients, serialization failure, deadlock: nothing was kept.
_PASSING_STATES = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01"})
# No such database, wrong password, no such role, no right to connect.
_SETUP_STATES = frozenset({"3D000", "28P01", "28000", "42501"})


class Database:
    """The store behind the ledger. Every part of `Ledger` is one of these.

    Work is a plain function of a connection: it runs in a thread for SQLite, in the event loop for
    PostgreSQL. A transaction whose connection broke is repeated: each write either changes nothing
    the second time, or (`begin_attempt`, `take`) leaves only what a lease or the next attempt cleans up.
    """

    def __init__(self, address: str, clock: Clock | None = None) -> None:
        self.url = parse_address(address)
        self.shown = shown(address)
        self._clock: Clock = clock or SystemClock()
        is_sqlite = self.url.drivername.startswith("sqlite")
        self._store = SqliteStore(self.url) if is_sqlite else PostgresqlStore(self.url)

    async def close(self) -> None:
        """Close all connections."""
        await self._store.close()

    async def _read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection.

        Raises:
            LedgerError: the database did not answer.
        """
        return await self._repeated(lambda: self._store.read(work))

    async def _write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction, kept when it returns and dropped when it raises.

        Raises:
            LedgerError: the database did not answer.
        """
        return await self._repeated(lambda: self._store.write(work))

    async def _repeated(self, once: Callable[[], Awaitable[T]]) -> T:
        for delay_s in _RETRY_DELAYS_S:
            try:
                return await once()
            except FOREIGN as exc:
                if not _is_passing(exc):
                    raise self._wrapped(exc) from exc
                logger.warning("ledger %s: %s; again in %.1f s", self.shown, type(exc).__name__, delay_s)
            await self._clock.sleep(delay_s)
        try:
            return await once()
        except FOREIGN as exc:
            raise self._wrapped(exc) from exc

    def _wrapped(self, exc: BaseException) -> LedgerError | UsageError:
        cause = _cause(exc)
        first_line = (str(cause) or type(cause).__name__).splitlines()[0]
        if _state(exc) in _SETUP_STATES or _is_bad_file(cause):
            return bad_address(self.shown, first_line)
        return LedgerError(f"ledger {self.shown}: {first_line}")


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
