"""The tables make themselves, whoever opens the ledger first."""

import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

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
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place where no ledger is yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/deep/down/ledger.db"
    server: Postgres = request.getfixturevalue("postgres")
    name = f"new_{abs(hash(tmp_path))}"
    server.create_database(name)
    return server.url(name)


def _differences(connection: Connection) -> object:
    return compare_metadata(MigrationContext.configure(connection), metadata)


async def test_migrations_make_what_the_code_expects(ledger: Ledger) -> None:
    assert await ledger._read(_differences) == []


def test_the_newest_migration_is_the_one_that_is_looked_for() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [HEAD]


async def test_a_new_ledger_makes_its_folder_and_tables(new_url: str) -> None:
    async with await open_ledger(new_url) as ledger:
        assert await ledger.batches() == ()
    async with await open_ledger(new_url) as again:
        assert await again.batches() == ()


async def test_a_sqlite_ledger_uses_the_write_ahead_log_and_foreign_keys(tmp_path: Path) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/l.db")

    async with ledger:
        assert await ledger._read(lambda c: c.scalar(text("PRAGMA journal_mode"))) == "wal"
        assert await ledger._read(lambda c: c.scalar(text("PRAGMA foreign_keys"))) == 1


async def test_two_processes_open_a_new_ledger_at_once(new_url: str) -> None:
    async def work() -> None:
        command = [sys.executable, "-W", "error", "-c", _OPEN, new_url]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
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
