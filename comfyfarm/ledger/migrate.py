"""Brings the database to the newest schema, under a lock, when it is opened."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from comfyfarm.errors import UsageError
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.schema import metadata
from comfyfarm.ledger.sqlite import SqliteStore

HEAD = "0002"
"""The newest migration. Kept here so that an up-to-date ledger opens without loading alembic."""

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x636F6D6679_01
"""Of PostgreSQL's advisory lock; the first bytes spell `comfy`."""
_WAL_TRIES = 100
_WAL_PAUSE_S = 0.05


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
        if isinstance(self._store, SqliteStore):
            await self._use_write_ahead_log(self._store)
        await self._write(_upgrade)

    async def _use_write_ahead_log(self, store: SqliteStore) -> None:
        # Kept in the file. The change needs the file alone, and SQLite does not wait for that.
        for _ in range(_WAL_TRIES):
            try:
                await store.bare(_set_wal)
            except sqlite3.OperationalError:
                await self._clock.sleep(_WAL_PAUSE_S)
            else:
                return


def _set_wal(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _create(connection: Connection) -> None:
    """A new ledger, as all migrations together would leave it."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    revision = _revision(connection)
    if revision is None:
        _create(connection)
    if revision in {None, HEAD}:
        return
    # alembic takes 0.3 s, and most openings find nothing to do.
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
