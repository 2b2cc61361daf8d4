"""Settings of a job, and the order in which jobs are handed out, kept in a column and an index."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("deadline", sa.Float))
    op.add_column("jobs", sa.Column("tenant", sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("deadlines", sa.Text, nullable=False, server_default="{}"))
    op.add_column("jobs", sa.Column("turn", sa.Integer, nullable=False, server_default="2"))
    op.execute(
        "UPDATE jobs SET turn = CASE WHEN status IN ('succeeded', 'dead', 'cancelled') THEN 3"
        " WHEN status = 'rendered' THEN 0 WHEN open_attempt IS NOT NULL THEN 1 ELSE 2 END"
    )
    op.drop_index("ix_jobs_batch_status", "jobs")
    op.create_index("ix_jobs_batch_status", "jobs", ["batch", "status"])
    op.create_index("ix_jobs_batch_owner", "jobs", ["batch", "owner"])
    op.create_index(
        "ix_jobs_batch_turn", "jobs", ["batch", "turn", sa.text("priority DESC"), "position", "id"]
    )
