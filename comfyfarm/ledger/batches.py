"""Batches: handing jobs in, and cancelling them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from comfyfarm.errors import JobConflict, UsageError
from comfyfarm.ledger.database import Database
from comfyfarm.ledger.held import OVER, is_free
from comfyfarm.ledger.records import BatchRecord, Status, Turn, overrides_text, settings_columns
from comfyfarm.ledger.schema import batches, db_now, graphs, jobs
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.job_settings import JobSettings

_CHUNK = 500
"""Rows in one look-up: SQLite and PostgreSQL bound the number of parameters."""


class Batches(Database):
    """The part of the ledger that takes batches in."""

    async def add_batch(
        self, batch: BatchRecord, graphs_by_digest: Mapping[str, str], specs: Sequence[JobSpec]
    ) -> None:
        """Add a batch, or jobs to a known one, in one transaction.

        Known jobs of the same content stay; those that are not finished take the new settings.

        Raises:
            JobConflict: a known id with other content, or in another batch.
            UsageError: a job names a graph that is neither given nor known, or another batch.
        """
        strangers = [spec.id for spec in specs if spec.batch != batch.name]
        if strangers:
            raise UsageError(f"job {strangers[0]} does not name batch {batch.name}")

        def work(connection: Connection) -> None:
            _add_batch_row(connection, batch)
            _add_graphs(connection, graphs_by_digest)
            # The batch's row is locked now, so that two calls for one batch take turns.
            known = _known(connection, [spec.id for spec in specs])
            new = [spec for spec in specs if not _is_known(spec, known)]
            if new:
                _add_jobs(connection, new)
            _change_settings(connection, specs, known)

        await self._write(work)

    async def batch(self, name: str) -> BatchRecord:
        """One batch.

        Raises:
            UsageError: the ledger has no such batch.
        """

        def work(connection: Connection) -> Any:
            return (connection.execute(select(batches).where(batches.c.name == name))).one_or_none()

        row = await self._read(work)
        if row is None:
            raise UsageError(f"the ledger {self.shown} has no batch {name}")
        return _batch_record(row)

    async def batches(self) -> tuple[BatchRecord, ...]:
        """All batches, oldest first."""

        def work(connection: Connection) -> tuple[BatchRecord, ...]:
            rows = connection.execute(select(batches).order_by(batches.c.created, batches.c.name))
            return tuple(_batch_record(row) for row in rows.all())

        return await self._read(work)

    async def graph(self, digest: str) -> str:
        """The JSON text of a graph.

        Raises:
            UsageError: the ledger has no such graph.
        """

        def work(connection: Connection) -> str | None:
            body: str | None = connection.scalar(select(graphs.c.body).where(graphs.c.digest == digest))
            return body

        body = await self._read(work)
        if body is None:
            raise UsageError(f"the ledger {self.shown} has no graph {digest}")
        return body

    async def cancel_batch(self, batch: str, reason: str, *, dead_owners: Sequence[str] = ()) -> int:
        """Cancel the jobs of a batch that nobody holds and that are not rendered.

        Returns:
            How many were cancelled. Jobs with a living owner are that owner's to cancel.
        """
        statement = (
            update(jobs)
            .where(jobs.c.batch == batch, jobs.c.status.in_((Status.PENDING, Status.RUNNING)))
            .where(is_free(dead_owners))
            .values(status=Status.CANCELLED.value, reason_class="cancelled", reason=reason, **OVER)
        )

        def work(connection: Connection) -> int:
            return (connection.execute(statement)).rowcount

        return await self._write(work)


def upsert(connection: Connection, table: Any) -> Any:
    """An INSERT that can say what to do on a conflict."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)


def _add_batch_row(connection: Connection, batch: BatchRecord) -> None:
    values = {
        "name": batch.name,
        "out": batch.out,
        "tenant": batch.tenant,
        "priority": batch.priority,
        "parameters": batch.parameters_json,
    }
    statement = upsert(connection, batches).values(**values, created=db_now())
    # The newest call's word on what its jobs need; it holds what the earlier ones needed, too.
    newest = {"parameters": batch.parameters_json}
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=newest))


def _add_graphs(connection: Connection, bodies: Mapping[str, str]) -> None:
    # In the order of their keys, so that two batches with the same graphs cannot lock crosswise.
    rows = [{"digest": digest, "body": body} for digest, body in sorted(bodies.items())]
    if rows:
        connection.execute(upsert(connection, graphs).on_conflict_do_nothing(), rows)


def _known(connection: Connection, ids: Sequence[str]) -> dict[str, Any]:
    """The rows of the jobs that the ledger already has."""
    columns = [jobs.c[name] for name in ("id", "batch", "content_digest", *JobSettings.model_fields)]
    found: dict[str, Any] = {}
    for start in range(0, len(ids), _CHUNK):
        query = select(*columns).where(jobs.c.id.in_(ids[start : start + _CHUNK]))
        found |= {row.id: row for row in connection.execute(query)}
    return found


def _is_known(spec: JobSpec, known: Mapping[str, Any]) -> bool:
    if spec.id not in known:
        return False
    row = known[spec.id]
    if row.batch != spec.batch:
        raise JobConflict(
            f"job {spec.id} is already in batch {row.batch}; give it another id to add it to {spec.batch}"
        )
    if row.content_digest != spec.content_digest:
        raise JobConflict(
            f"job {spec.id} of batch {row.batch} is known with other content (workflow or overrides); "
            "a changed job needs another id"
        )
    return True


def _change_settings(connection: Connection, specs: Sequence[JobSpec], known: Mapping[str, Any]) -> None:
    changed = [
        {"of_job": spec.id} | {f"new_{name}": value for name, value in columns.items()}
        for spec in specs
        if spec.id in known
        for columns in [settings_columns(spec)]
        if any(known[spec.id]._mapping[name] != value for name, value in columns.items())
    ]
    if changed:
        connection.execute(_NEW_SETTINGS, changed)


_NEW_SETTINGS = (
    update(jobs)
    .where(jobs.c.id == bindparam("of_job"), jobs.c.turn < Turn.OVER.value)
    .values({name: bindparam(f"new_{name}") for name in JobSettings.model_fields})
)


def _add_jobs(connection: Connection, specs: Sequence[JobSpec]) -> None:
    wanted = sorted({spec.graph_digest for spec in specs})
    there = (connection.scalars(select(graphs.c.digest).where(graphs.c.digest.in_(wanted)))).all()
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise UsageError(f"graph {missing[0]} is named by a job, but was not handed in")
    connection.execute(insert(jobs), [_job_row(spec) for spec in specs])


def _job_row(spec: JobSpec) -> dict[str, object]:
    return {
        "id": spec.id,
        "batch": spec.batch,
        "position": spec.position,
        "graph_digest": spec.graph_digest,
        "overrides": overrides_text(spec.overrides),
        "content_digest": spec.content_digest,
        "status": Status.PENDING.value,
        **settings_columns(spec),
    }


def _batch_record(row: Any) -> BatchRecord:
    return BatchRecord(
        name=row.name,
        out=row.out,
        tenant=row.tenant,
        priority=row.priority,
        parameters_json=row.parameters,
        created=row.created,
    )
