"""The tables make themselves, whoever opens the ledger first."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from comfyfarm.control.postgres import Postgres
from comfyfarm.errors import UsageError
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.migrate import HEAD, MIGRATIONS
from comfyfarm.ledger.schema import metadata

_OPEN = """
import asyncio, sys
from comfyfarm.ledger.ledger import open_ledger

async def main() -> None:
    async with await open_ledger(sys.argv[1]) as ledger:
        await ledger.batches()

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Places where no ledger is yet, a new one with each call."""
    number = count()

    def make() -> str:
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path}/deep/down/{next(number)}.db"
        server: Postgres = request.getfixturevalue("postgres")
        name = f"new_{abs(hash(tmp_path))}_{next(number)}"
        server.create_database(name)
        return server.url(name)

    return make


@pytest.fixture
def new_url(make_place: Callable[[], str]) -> str:
    """A place where no ledger is yet."""
    return make_place()


def _differences(connection: Connection) -> object:
    return compare_metadata(MigrationContext.configure(connection), metadata)


def _upgrade(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _shape(connection: Connection) -> dict[str, object]:
    """Each table's columns and indexes, whatever their order."""
    seen = inspect(connection)
    return {
        table: (
            {
                one["name"]: (str(one["type"]), one["nullable"], one["default"])
                for one in seen.get_columns(table)
            },
            {one["name"]: (one["column_names"], one["unique"]) for one in seen.get_indexes(table)},
            {tuple(one["constrained_columns"]) for one in seen.get_foreign_keys(table)},
        )
        for table in metadata.tables
    }


async def test_a_new_ledger_is_what_all_migrations_make(make_place: Callable[[], str]) -> None:
    async with Ledger(make_place()) as migrated:
        await migrated._write(lambda connection: _upgrade(connection, "head"))
        assert await migrated._read(_differences) == []
        expected = await migrated._read(_shape)

    async with await open_ledger(make_place()) as new:
        assert await new._read(_differences) == []
        assert await new._read(_shape) == expected
        await new._write(lambda connection: _upgrade(connection, "head"))  # finds nothing to do


def test_the_newest_migration_is_the_one_that_is_looked_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]


async def test_a_new_ledger_makes_its_folder_and_tables(new_url: str) -> None:
    async with await open_ledger(new_url) as ledger:
        assert await ledger.batches() == ()
    async with await open_ledger(new_url) as again:
        assert await again.batches() == ()


_FIRST_ROWS = """
INSERT INTO batches (name, out, parameters, created) VALUES ('b', 'o', '{}', 0);
INSERT INTO graphs VALUES ('g', '{}');
INSERT INTO jobs (id, batch, position, graph_digest, overrides, content_digest, status, open_attempt)
VALUES ('1', 'b', 0, 'g', '[]', 'c', 'pending', NULL), ('2', 'b', 1, 'g', '[]', 'c', 'running', 7),
       ('3', 'b', 2, 'g', '[]', 'c', 'rendered', NULL), ('4', 'b', 3, 'g', '[]', 'c', 'dead', NULL);
"""


async def test_jobs_of_an_older_ledger_are_handed_out_as_before(new_url: str) -> None:
    def make_old(connection: Connection) -> None:
        _upgrade(connection, "0001")
        for statement in _FIRST_ROWS.split(";")[:-1]:
            connection.execute(text(statement))

    async with Ledger(new_url) as old:
        await old._write(make_old)
    async with await open_ledger(new_url) as ledger:
        turns = "SELECT id, turn, priority, deadlines FROM jobs ORDER BY turn, position"
        rows = await ledger._read(lambda connection: connection.execute(text(turns)).all())

    assert [tuple(row) for row in rows] == [
        ("3", 0, 0, "{}"), ("2", 1, 0, "{}"), ("1", 2, 0, "{}"), ("4", 3, 0, "{}"),
    ]  # fmt: skip


async def test_a_sqlite_ledger_uses_the_write_ahead_log_and_foreign_keys(tmp_path: Path) -> None:
    await (await open_ledger(f"sqlite:///{tmp_path}/l.db")).close()

    async with await open_ledger(f"sqlite:///{tmp_path}/l.db") as ledger:
        assert await ledger._read(lambda c: c.scalar(text("PRAGMA journal_mode"))) == "wal"
        assert await ledger._read(lambda c: c.scalar(text("PRAGMA foreign_keys"))) == 1


async def test_two_processes_open_a_new_ledger_at_once(new_url: str) -> None:
    async def work() -> None:
        words = [sys.executable, "-W", "error", "-c", _OPEN, new_url]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    await asyncio.gather(work(), work())


async def test_several_openings_in_one_process_at_once(new_url: str) -> None:
    opened = await asyncio.gather(*(open_ledger(new_url) for _ in range(4)))

    for ledger in opened:
        assert await ledger.batches() == ()
        await ledger.close()


async def test_migrating_prints_nothing_and_leaves_logging_alone(
    new_url: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("alembic").level)

    async with await open_ledger(new_url):
        pass

    assert (root.level, list(root.handlers), logging.getLogger("alembic").level) == before
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_ledger_of_a_newer_comfyfarm_is_refused(ledger: Ledger, ledger_url: str) -> None:
    newer = text("UPDATE alembic_version SET version_num = '9999'")
    await ledger._write(lambda connection: connection.execute(newer).rowcount)

    with pytest.raises(UsageError, match="newer comfyfarm"):
        await open_ledger(ledger_url)
