"""SQLite: writes that wait for the writer share a commit, and nothing else."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from comfyfarm.errors import LedgerError, StaleClaim
from comfyfarm.ledger.ledger import Ledger, open_ledger

INSERT = "INSERT INTO batches (name, out, parameters, created) VALUES (:name, 'o', '{}', 0)"


@pytest.fixture
async def file_ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    async with await open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


def insert(name: str, *, error: Exception | None = None) -> Callable[[Connection], str]:
    """Work that writes a row, and perhaps fails after it."""

    def work(connection: Connection) -> str:
        connection.execute(text(INSERT), {"name": name})
        if error is not None:
            raise error
        return name

    return work


@asynccontextmanager
async def busy(ledger: Ledger) -> AsyncIterator[None]:
    """The writer is at work until the block ends, so that what is written in it waits together."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work(_connection: Connection) -> None:
        has_begun.set()
        assert may_end.wait(timeout=30)

    first = asyncio.create_task(ledger._write(work))
    await asyncio.to_thread(has_begun.wait, 30)
    try:
        yield
    finally:
        may_end.set()
        await first


async def written_together(ledger: Ledger, *works: Callable[[Connection], Any]) -> list[Any]:
    async with busy(ledger):
        tasks = [asyncio.create_task(ledger._write(work)) for work in works]
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop: each has queued its work
    return await asyncio.gather(*tasks, return_exceptions=True)


async def names(ledger: Ledger) -> list[str]:
    return [batch.name for batch in await ledger.batches()]


async def test_what_waits_is_committed_once(file_ledger: Ledger) -> None:
    commits = 0

    def count(statement: str) -> None:
        nonlocal commits
        commits += statement == "COMMIT"

    def trace(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.set_trace_callback(count)

    await file_ledger._write(trace)
    commits = 0
    results = await written_together(file_ledger, insert("a"), insert("b"), insert("c"))

    assert results == ["a", "b", "c"]
    assert await names(file_ledger) == ["a", "b", "c"]
    assert commits == 2  # the one that kept the writer busy, and the three


async def test_one_that_fails_takes_nothing_from_the_others(file_ledger: Ledger) -> None:
    results = await written_together(
        file_ledger, insert("a"), insert("b", error=StaleClaim("lost")), insert("c")
    )

    assert [type(result) for result in results] == [str, StaleClaim, str]
    assert await names(file_ledger) == ["a", "c"]


async def test_trouble_of_the_database_is_only_its_causers(file_ledger: Ledger) -> None:
    results = await written_together(file_ledger, insert("a"), insert("a"), insert("c"))

    assert [type(result) for result in results] == [str, LedgerError, str]
    assert await names(file_ledger) == ["a", "c"]


async def test_work_whose_caller_is_gone_before_its_turn_is_not_done(file_ledger: Ledger) -> None:
    async with busy(file_ledger):
        tasks = [asyncio.create_task(file_ledger._write(insert(name))) for name in "abc"]
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop: each has queued its work
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert await names(file_ledger) == ["a", "c"]
    assert await file_ledger._write(insert("d")) == "d"


async def test_a_file_that_may_not_grow_fails_each_write_and_works_again_afterwards(
    file_ledger: Ledger,
) -> None:
    def limit(pages: int) -> Callable[[Connection], Any]:
        return lambda connection: connection.execute(text(f"PRAGMA max_page_count = {pages}")).all()

    await file_ledger._write(limit(1))  # never below what there is: full from now on
    big = text("INSERT INTO graphs VALUES (:digest, :body)")

    def fill(digest: str) -> Callable[[Connection], Any]:
        return lambda connection: connection.execute(big, {"digest": digest, "body": "x" * 100_000}).rowcount

    results = await written_together(file_ledger, fill("a"), insert("b"), fill("c"))
    assert [type(result) for result in results] == [LedgerError, str, LedgerError]
    assert "full" in str(results[0])

    await file_ledger._write(limit(1_000_000))
    assert await file_ledger._write(fill("a")) == 1
    assert await names(file_ledger) == ["b"]
