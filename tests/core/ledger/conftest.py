"""A ledger on both databases: each test runs on SQLite and on a real PostgreSQL, freshly migrated."""

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import update

from comfyfarm.control.postgres import Postgres, running_postgres
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.migrate import HEAD
from comfyfarm.ledger.records import BatchRecord
from comfyfarm.ledger.schema import db_now, jobs, metadata
from comfyfarm.plan.job import JobSpec, Override

GRAPH = "a" * 64

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for the run, where its user can reach it although we may be root."""
    home = Path(tempfile.mkdtemp(prefix="comfyfarm-test-"))
    home.chmod(0o711)
    try:
        with running_postgres(home / "control", settings=["fsync=off"]) as server:
            yield server
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> Postgres:
    """PostgreSQL with a migrated database `test`."""
    postgres.create_database("test")
    asyncio.run(_migrate(postgres.url("test")))
    return postgres


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy from."""
    path = tmp_path_factory.mktemp("model") / "ledger.db"
    asyncio.run(_migrate(f"sqlite:///{path}"))
    return path


async def _migrate(url: str) -> None:
    await (await open_ledger(url)).close()


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "ledger.db")
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: Postgres = request.getfixturevalue("migrated_postgres")
    asyncio.run(_empty(server))
    return server.url("test")


async def _empty(server: Postgres) -> None:
    # One database for all tests: a new one for each is 8 MB and 300 files.
    connection = await asyncpg.connect(host=str(server.place.socket_dir), user="postgres", database="test")
    try:
        await connection.execute(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY CASCADE")
        await connection.execute("UPDATE alembic_version SET version_num = $1", HEAD)
    finally:
        await connection.close()


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[Ledger]:
    """An open, empty ledger."""
    async with await open_ledger(ledger_url) as opened:
        yield opened


@pytest.fixture
def add_jobs(ledger: Ledger) -> AddJobs:
    """Adds `count` jobs to a batch and gives their ids, in order."""

    async def add(count: int, *, batch: str = "b", first: int = 0) -> tuple[JobId, ...]:
        specs = [make_spec(position, batch=batch) for position in range(first, first + count)]
        await ledger.add_batch(BatchRecord(name=batch, out="out"), {GRAPH: "{}"}, specs)
        return tuple(spec.id for spec in specs)

    return add


def make_spec(position: int, *, batch: str = "b", content: str = "c") -> JobSpec:
    """A job with an id of its own."""
    return JobSpec(
        id=JobId(str(uuid.uuid4())),
        batch=batch,
        position=position,
        graph_digest=GRAPH,
        overrides=(Override(node="3", input="seed", value=position),),
        content_digest=content * 64,
    )


@pytest.fixture
def make_job() -> Callable[..., JobSpec]:
    """See `make_spec`."""
    return make_spec


@pytest.fixture
def expire(ledger: Ledger) -> Callable[[Sequence[JobId]], Awaitable[None]]:
    """Moves the ends of jobs' leases into the past."""

    async def move(job_ids: Sequence[JobId]) -> None:
        statement = update(jobs).where(jobs.c.id.in_(job_ids)).values(lease_until=db_now() - 1.0)
        await ledger._write(lambda connection: connection.execute(statement).rowcount)

    return move
