"""Brings the database to the newest schema, under a lock, when it is opened."""

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from comfyfarm.clock import SystemClock
from comfyfarm.errors import UsageError
from comfyfarm.ledger.database import Database

HEAD = "0001"
"""The newest migration. Kept here so that an up-to-date ledger opens without loading alembic."""

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x636F6D6679_01
"""Of PostgreSQL's advisory lock; the first bytes spell `comfy`."""
_WAL_TRIES = 100


class Migrations(Database):
    """The part of the ledger that keeps its schema."""

    async def migrate(self) -> None:
        """Create or update the tables. Any number of processes may do so at once.

        Raises:
            LedgerError: the database did not answer.
            UsageError: the address leads to no usable database, or to one of a newer comfyfarm.
        """
        if await self._read(_revision) == HEAD:
            return
        if self.is_sqlite:
            await self._use_write_ahead_log()
        await self._write(_upgrade)

    async def _use_write_ahead_log(self) -> None:
        # Kept in the file. The change needs the file alone, and SQLite does not wait for that.
        for _ in range(_WAL_TRIES):
            try:
                async with self._engine.connect() as connection:
                    await connection.run_sync(_set_wal)
                return
            except (DBAPIError, sqlite3.OperationalError):
                await SystemClock().sleep(0.05)


def _set_wal(connection: Connection) -> None:
    # Past SQLAlchemy, which would begin a transaction first: the mode cannot change inside one.
    cursor = connection.connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


async def _revision(connection: AsyncConnection) -> str | None:
    return await connection.run_sync(_revision_sync)


def _revision_sync(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


async def _upgrade(connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    await connection.run_sync(_upgrade_sync)


def _upgrade_sync(connection: Connection) -> None:
    # alembic costs 0.1 s to load, and most openings find nothing to do.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as exc:
        raise UsageError(f"the ledger was made by a newer comfyfarm ({exc}); update comfyfarm") from exc
