"""Broken connections and cancelled writes."""

import asyncio
import random
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from comfyfarm.clock import SystemClock
from comfyfarm.control.postgres import Postgres, running_postgres, start_postgres
from comfyfarm.errors import LedgerError
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import BatchRecord

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]


class NoWait(SystemClock):
    """Does not wait between tries."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


async def test_a_cut_connection_is_made_again(migrated_postgres: Postgres) -> None:
    await asyncio.to_thread(migrated_postgres.create_database, "cut")
    async with await open_ledger(migrated_postgres.url("cut")) as ledger:
        await ledger.batches()
        async with await open_ledger(migrated_postgres.url("postgres")) as admin:
            await _cut(admin)

        await ledger.add_batch(BatchRecord(name="b", out="o"), {}, [])

        assert [batch.name for batch in await ledger.batches()] == ["b"]


async def _cut(admin: Ledger) -> None:
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'cut'"
    assert len(await admin._read(lambda connection: connection.execute(text(query)).all())) >= 1


async def test_a_restart_of_postgresql_is_waited_out() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o711)
        with running_postgres(home) as first:
            ledger = await open_ledger(first.url("comfyfarm"))
        waiting = asyncio.create_task(ledger.add_batch(BatchRecord(name="b", out="o"), {}, []))
        second = await asyncio.to_thread(start_postgres, home, logs=home)
        try:
            await waiting
            assert [batch.name for batch in await ledger.batches()] == ["b"]
        finally:
            await ledger.close()
            second.stop()


async def test_a_database_that_stays_away_is_a_ledger_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o711)
        with running_postgres(home) as server:
            ledger = await open_ledger(server.url("comfyfarm"), clock=NoWait())
        async with ledger:
            with pytest.raises(LedgerError, match="ledger postgresql://"):
                await ledger.batches()


async def test_cancelled_writes_leave_the_ledger_usable(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(5)
    chance = random.Random(7)

    async def work() -> None:
        for _, claim in await ledger.take("b", "me", 5):
            await ledger.begin_attempt(claim, server_url="u", server_identity="i", client_id="c")
            await ledger.give_back(claim)

    for _ in range(30):
        task = asyncio.create_task(work())
        await asyncio.wait([task], timeout=chance.uniform(0, 0.03))
        task.cancel()
        await asyncio.wait([task])

    async with asyncio.timeout(10):
        await ledger.take("b", "you", 5, dead_owners=["me"])
    assert {job.owner for job in await ledger.jobs("b")} == {"you"}


async def test_readers_do_not_wait_for_a_writer(ledger: Ledger, ledger_url: str, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    has_written, may_end = threading.Event(), threading.Event()

    def write(connection: Connection) -> None:
        connection.execute(text("UPDATE jobs SET reason = 'half done'"))
        has_written.set()
        assert may_end.wait(timeout=30)

    def in_a_thread() -> None:
        asyncio.run(_write_apart(ledger_url, write))

    writer = asyncio.create_task(asyncio.to_thread(in_a_thread))
    await asyncio.to_thread(has_written.wait, 30)
    async with asyncio.timeout(10):
        (job,) = await ledger.jobs("b")
    may_end.set()
    await writer

    assert job.reason == ""
    assert (await ledger.jobs("b"))[0].reason == "half done"


async def _write_apart(ledger_url: str, work: Callable[[Connection], None]) -> None:
    async with await open_ledger(ledger_url) as other:
        await other._write(work)
