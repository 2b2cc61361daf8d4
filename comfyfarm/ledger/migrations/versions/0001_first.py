"""The first tables: graphs, batches, jobs, attempts, outputs, servers, shards."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _batches()
    _jobs()
    _attempts()
    _servers()


def _batches() -> None:
    op.create_table(
        "graphs",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_graphs"),
    )
    op.create_table(
        "batches",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("out", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False, server_default=""),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_batches"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("batch", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("graph_digest", sa.Text, nullable=False),
        sa.Column("overrides", sa.Text, nullable=False),
        sa.Column("content_digest", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_until", sa.Float),
        sa.Column("reason_class", sa.Text),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("evidence", sa.Text, nullable=False, server_default=""),
        sa.Column("spool", sa.Text),
        sa.Column("server_url", sa.Text),
        sa.Column("attempts_made", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempts_before", sa.Integer, nullable=False, server_default="0"),
        sa.Column("open_attempt", sa.BigInteger),
        sa.Column("upload_failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("seconds", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.ForeignKeyConstraint(["batch"], ["batches.name"], name="fk_jobs_batch"),
        sa.ForeignKeyConstraint(["graph_digest"], ["graphs.digest"], name="fk_jobs_graph_digest"),
    )
    op.create_index("ix_jobs_batch_status", "jobs", ["batch", "status", "position"])


def _attempts() -> None:
    serial = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "attempts",
        sa.Column("id", serial, nullable=False, autoincrement=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("server_url", sa.Text, nullable=False),
        sa.Column("server_identity", sa.Text, nullable=False),
        sa.Column("client_id", sa.Text, nullable=False),
        sa.Column("prompt_number", sa.BigInteger),
        sa.Column("device", sa.Text, nullable=False, server_default=""),
        sa.Column("server_version", sa.Text, nullable=False, server_default=""),
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("verdict", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("message", sa.Text, nullable=False, server_default=""),
        sa.Column("evidence", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_attempts_job"),
    )
    op.create_index("ix_attempts_job", "attempts", ["job", "number"], unique=True)
    op.create_table(
        "outputs",
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("job", "path", name="pk_outputs"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_outputs_job"),
    )


def _servers() -> None:
    op.create_table(
        "servers",
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("lease_until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("url", "owner", name="pk_servers"),
    )
    op.create_table(
        "shards",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("batch", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("waiting_since", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.PrimaryKeyConstraint("id", name="pk_shards"),
        sa.ForeignKeyConstraint(["batch"], ["batches.name"], name="fk_shards_batch"),
    )
    op.create_index("ix_shards_host", "shards", ["host", "ended"])
