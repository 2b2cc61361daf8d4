"""Dead letters on a terminal and as JSON lines."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from pydantic import JsonValue

from comfyfarm.addresses import mask
from comfyfarm.ledger.records import AttemptRecord, JobRecord

Row = dict[str, JsonValue]


def short_row(job: JobRecord) -> Row:
    """What a list shows of a job."""
    return {
        "id": job.id,
        "batch": job.batch,
        "status": str(job.status),
        "ended": _moment(job.ended),
        "attempts": job.attempts,
        "server": mask(job.server_url) if job.server_url else None,
        "reason_class": job.reason_class,
        "reason": job.reason,
    }


def whole_row(job: JobRecord, attempts: Sequence[AttemptRecord], evidence: str) -> Row:
    """All that is known of a job."""
    return {
        **short_row(job),
        "overrides": {str(one): one.value for one in job.overrides},
        "tenant": job.tenant,
        "priority": job.priority,
        "deadline": _moment(job.deadline),
        "deadlines": dict(job.deadlines),
        "evidence": evidence,
        "tries": [_attempt(one) for one in attempts],
    }


def _attempt(attempt: AttemptRecord) -> Row:
    shown = attempt.model_dump(
        mode="json", include={"number", "device", "verdict", "reason", "message", "evidence", "counts"}
    )
    times: Row = {"started": _moment(attempt.started), "ended": _moment(attempt.ended)}
    return {**shown, **times, "server": mask(attempt.server_url)}


def _moment(unix_s: float | None) -> str | None:
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def print_lines(rows: Sequence[Row]) -> None:
    """One JSON object a line."""
    for row in rows:
        click.echo(json.dumps(row))


def print_table(rows: Sequence[Row]) -> None:
    """A table of short rows."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("job", "batch", "when", "tries", "server", "reason"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        server = str(row["server"] or "").removeprefix("http://")
        table.add_row(
            *(str(row[key] or "") for key in ("id", "batch", "ended")),
            str(row["attempts"]),
            server,
            str(row["reason"]),
        )
    Console(width=None if Console().is_terminal else 200, markup=False).print(table)


def as_text(row: Row) -> str:
    """One job for people: its own fields, then each attempt with what was kept of it."""
    plain = [(key, value) for key, value in row.items() if key not in {"evidence", "tries"}]
    lines = [f"{key:<13} {_one_line(value)}" for key, value in plain if value not in (None, "", {})]
    tries: Any = row["tries"]
    for one in tries:
        before = "" if one["counts"] else " (before it was requeued)"
        lines += ["", f"attempt {one['number']} on {one['server']}{before}, {one['started']}"]
        lines += [f"  {one['verdict'] or 'given up'}: {one['reason'] or ''} {one['message']}".rstrip()]
        lines += [f"  | {line}" for line in str(one["evidence"]).splitlines()]
    if row["evidence"] and row["evidence"] not in {one["evidence"] for one in tries}:
        lines += ["", "evidence", *(f"  | {line}" for line in str(row["evidence"]).splitlines())]
    return "\n".join([*lines, ""])


def _one_line(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
