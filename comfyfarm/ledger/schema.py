"""The ledger's tables, the same on PostgreSQL and SQLite, and the database's own clock.

Times are Unix seconds as floats. A change here needs a migration in `migrations/versions`.
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

Serial = BigInteger().with_variant(Integer, "sqlite")
"""A key that counts by itself: SQLite does so for INTEGER only."""

graphs = Table(
    "graphs",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("name", Text, primary_key=True),
    Column("out", Text, nullable=False),
    Column("tenant", Text, nullable=False, server_default=""),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("parameters", Text, nullable=False),
    Column("created", Float, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("batch", Text, ForeignKey("batches.name"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("graph_digest", Text, ForeignKey("graphs.digest"), nullable=False),
    Column("overrides", Text, nullable=False),
    Column("content_digest", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("owner", Text),
    Column("token", BigInteger, nullable=False, server_default="0"),
    Column("lease_until", Float),
    Column("reason_class", Text),
    Column("reason", Text, nullable=False, server_default=""),
    Column("evidence", Text, nullable=False, server_default=""),
    Column("spool", Text),
    Column("server_url", Text),
    Column("attempts_made", Integer, nullable=False, server_default="0"),
    # Attempts up to this number happened before a requeue and count no more.
    Column("attempts_before", Integer, nullable=False, server_default="0"),
    # The attempt without an end, if there is one: its prompt may still run on a server.
    Column("open_attempt", BigInteger),
    Column("upload_failures", Integer, nullable=False, server_default="0"),
    Column("started", Float),
    Column("ended", Float),
    Column("seconds", Float),
    # How the job wants to be run: `comfyfarm.plan.job_settings`.
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("deadline", Float),
    Column("tenant", Text, nullable=False, server_default=""),
    Column("deadlines", Text, nullable=False, server_default="{}"),
    # What is handed out first (`Turn`), kept so that an index gives the next job without sorting.
    Column("turn", Integer, nullable=False, server_default="2"),
)
Index("ix_jobs_batch_status", jobs.c.batch, jobs.c.status)
Index("ix_jobs_batch_owner", jobs.c.batch, jobs.c.owner)
Index(
    "ix_jobs_batch_turn",
    jobs.c.batch,
    jobs.c.turn,
    jobs.c.priority.desc(),
    jobs.c.position,
    jobs.c.id,
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Serial, primary_key=True),
    Column("job", Text, ForeignKey("jobs.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("server_url", Text, nullable=False),
    Column("server_identity", Text, nullable=False),
    Column("client_id", Text, nullable=False),
    Column("prompt_number", BigInteger),
    Column("device", Text, nullable=False, server_default=""),
    Column("server_version", Text, nullable=False, server_default=""),
    Column("started", Float, nullable=False),
    Column("ended", Float),
    Column("verdict", Text),
    Column("reason", Text),
    Column("message", Text, nullable=False, server_default=""),
    Column("evidence", Text, nullable=False, server_default=""),
)
Index("ix_attempts_job", attempts.c.job, attempts.c.number, unique=True)

outputs = Table(
    "outputs",
    metadata,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("sha256", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
)

servers = Table(
    "servers",
    metadata,
    Column("url", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("lease_until", Float, nullable=False),
)

shards = Table(
    "shards",
    metadata,
    Column("id", Text, primary_key=True),
    Column("batch", Text, ForeignKey("batches.name"), nullable=False),
    Column("host", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("waiting_since", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
)
Index("ix_shards_host", shards.c.host, shards.c.ended)


class db_now(FunctionElement[float]):  # noqa: N801  (used like SQL's own functions)
    """The database's present Unix time in seconds, evaluated inside the statement."""

    type = Float()
    inherit_cache = True


@compiles(db_now, "postgresql")
def _now_postgresql(_element: object, _compiler: object, **_options: Any) -> str:
    # Not now(): that is the transaction's start, which may be long ago after waiting for a lock.
    return "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(db_now, "sqlite")
def _now_sqlite(_element: object, _compiler: object, **_options: Any) -> str:
    # unixepoch('subsec') came with SQLite 3.42 only; the day number of the Unix epoch is 2440587.5.
    return "((julianday('now') - 2440587.5) * 86400.0)"
