"""`comfyfarm results [BATCH]`: what became of a batch, by default of the newest."""

import asyncio

import click

from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.rows import Form, print_rows
from comfyfarm.errors import UsageError
from comfyfarm.farm.ledgers import known_ledger
from comfyfarm.farm.results import ResultRow, row_of
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.settings import read_settings


@click.command("results")
@click.argument("batch", required=False)
@click.option("--ledger", metavar="URL", help="sqlite:///PATH or postgresql://…")
@click.option("--local", is_flag=True, help="The ledger of `render --local`.")
@click.option("--csv", "form", flag_value="csv", help="A table for other programs.")
@click.option("--json", "form", flag_value="json", help="One JSON object a line for each job.")
@ends_with_exit_code
def command(batch: str | None, ledger: str | None, form: Form | None, *, local: bool) -> None:
    """Show what became of a batch; without BATCH, of the newest one."""
    with known_ledger(read_settings(), ledger, local=local, on_line=say) as url:
        name, rows = asyncio.run(_read(url.get_secret_value(), batch))
    if form is None:
        click.echo(name)
    print_rows(rows, form or "table")


async def _read(url: str, batch: str | None) -> tuple[str, list[ResultRow]]:
    opened = await open_ledger(url)
    try:
        name = await _name(opened, batch)
        return name, [row_of(job) for job in await opened.jobs(name)]
    finally:
        await opened.close()


async def _name(ledger: Ledger, batch: str | None) -> str:
    known = [one.name for one in await ledger.batches()]
    if not known:
        raise UsageError(f"nothing has been rendered yet: the ledger {ledger.shown} has no batch")
    if batch is None:
        return known[-1]
    if batch not in known:
        raise UsageError(f"the ledger has no batch {batch!r}; it has: {', '.join(known)}")
    return batch
