"""Result rows on a terminal, as JSON lines or as CSV."""

from collections.abc import Sequence
from typing import Literal

import click

from comfyfarm.farm.results import ResultRow, as_csv

Form = Literal["table", "json", "csv"]


def print_rows(rows: Sequence[ResultRow], form: Form) -> None:
    """Print them on stdout."""
    if form == "csv":
        click.echo(as_csv(rows), nl=False)
    elif form == "json":
        for row in rows:
            click.echo(row.as_json())
    else:
        _table(rows)


def _table(rows: Sequence[ResultRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("job", "parameters", "status", "server", "tries", "seconds", "files", "reason"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            row.id[:8],
            " ".join(f"{key}={value}" for key, value in row.parameters.items())[:60],
            row.status,
            (row.server or "").removeprefix("http://"),
            str(row.attempts),
            "" if row.seconds is None else f"{row.seconds:.2f}",
            "\n".join(f"{file.path} {file.sha256[:8]}" for file in row.files),
            row.reason,
        )
    Console(width=None if Console().is_terminal else 160, markup=False).print(table)
