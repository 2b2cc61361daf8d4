"""`comfyfarm dead-letters list|show|requeue|drop`: jobs that failed for good, and what becomes of them."""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from comfyfarm.cli.dead_letter_rows import Row, as_text, print_lines, print_table, short_row, whole_row
from comfyfarm.cli.edge import ends_with_exit_code, say
from comfyfarm.cli.ledger_option import ledger_options, with_ledger
from comfyfarm.clock import SystemClock
from comfyfarm.errors import UsageError
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.records import JobRecord, Status

Function = TypeVar("Function", bound=Callable[..., Any])

_ID_START = re.compile(r"[0-9a-f-]{8,36}")
_ENDED = (Status.DEAD, Status.CANCELLED)


def _choice_options(function: Function) -> Function:
    """`JOB… | --all`, `--batch`, `--json`, and where the ledger is."""
    for option in (
        click.argument("job_ids", nargs=-1, metavar="[JOB]..."),
        click.option(
            "--all", "everything", is_flag=True, help="Every dead job, of --batch if that is given."
        ),
        *_SHARED,
    ):
        function = option(function)
    return function


_SHARED: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each job."),
    click.option("--batch", metavar="NAME", help="Of this batch only."),
    ledger_options,
)


def _list_options(function: Function) -> Function:
    for option in _SHARED:
        function = option(function)
    return function


@click.group("dead-letters")
def command() -> None:
    """Jobs that failed for good: look at them, requeue or drop them.

    JOB is a job's id, or how it begins (eight signs or more). A dead job stays dead, also when the
    same `render` is called again, until it is requeued here; then that same call runs it.
    """


@command.command("list")
@_list_options
@ends_with_exit_code
def list_(ledger: str | None, batch: str | None, *, local: bool, as_json: bool) -> None:
    """List the dead jobs, in the order in which they died."""

    async def work(opened: Ledger) -> list[Row]:
        return [short_row(job) for job in await _dead(opened, batch)]

    rows = with_ledger(work, ledger, local=local)
    if as_json:
        print_lines(rows)
    elif rows:
        print_table(rows)
    else:
        say("no dead letters")


@command.command("show")
@_choice_options
@ends_with_exit_code
def show(ledger: str | None, *, local: bool, as_json: bool, **choice: Any) -> None:
    """Show all that is known of dead jobs: each attempt, with its reason and evidence."""

    async def work(opened: Ledger) -> list[Row]:
        jobs = await _chosen(opened, **choice)
        for job in jobs:
            _refuse_others(job, _ENDED, "show")
        return [whole_row(job, await opened.attempts(job.id), await opened.evidence(job.id)) for job in jobs]

    rows = with_ledger(work, ledger, local=local)
    if as_json:
        print_lines(rows)
    else:
        for row in rows:
            click.echo(as_text(row))


@command.command("requeue")
@_choice_options
@ends_with_exit_code
def requeue(ledger: str | None, *, local: bool, as_json: bool, **choice: Any) -> None:
    """Have dead jobs run again: once, by the next `render` of their batch, or one that runs now.

    Repeating it changes nothing. A job that was dropped or cancelled comes back too, when it is named.
    """

    async def work(opened: Ledger) -> list[JobRecord]:
        jobs = await _chosen(opened, **choice)
        for job in jobs:
            if job.status == Status.SUCCEEDED:
                raise UsageError(f"job {job.id} has succeeded: there is nothing to run again")
        for job in jobs:
            await opened.requeue(job.batch, [job.id])
        return [await opened.job(job.id) for job in jobs]

    jobs = with_ledger(work, ledger, local=local)
    for job in jobs:
        if job.status == Status.PENDING and job.deadline is not None and job.deadline < SystemClock().now():
            say(f"job {job.id}: its deadline is over; give it another one in the job file, or it dies again")
    _report(jobs, as_json=as_json)


@command.command("drop")
@_choice_options
@click.option("--why", default="", help="Why it is not needed, for those who look later.")
@ends_with_exit_code
def drop(ledger: str | None, *, local: bool, as_json: bool, why: str, **choice: Any) -> None:
    """Do without dead jobs: they become `cancelled`, and keep their evidence. Repeating changes nothing."""

    async def work(opened: Ledger) -> list[JobRecord]:
        jobs = await _chosen(opened, **choice)
        for job in jobs:
            _refuse_others(job, _ENDED, "drop")
        for job in jobs:
            await opened.drop(job.batch, [job.id], why=why)
        return [await opened.job(job.id) for job in jobs]

    _report(with_ledger(work, ledger, local=local), as_json=as_json)


# --- which jobs ----------------------------------------------------------------------------------


async def _chosen(
    ledger: Ledger, *, job_ids: Sequence[str], everything: bool, batch: str | None
) -> tuple[JobRecord, ...]:
    if everything == bool(job_ids):
        raise UsageError("name jobs by their ids, or all of them with --all")
    if everything:
        return await _dead(ledger, batch)
    return tuple([await _named(ledger, one, batch) for one in dict.fromkeys(job_ids)])


async def _dead(ledger: Ledger, batch: str | None) -> tuple[JobRecord, ...]:
    if batch is not None:
        await ledger.batch(batch)  # a name that is misspelt has no dead letters either
    return await ledger.dead_letters(batch)


async def _named(ledger: Ledger, start: str, batch: str | None) -> JobRecord:
    if not _ID_START.fullmatch(start):
        raise UsageError(f"{start!r} is no job id; `comfyfarm dead-letters list` shows them")
    found = await ledger.find_jobs(start)
    if not found:
        raise UsageError(f"the ledger {ledger.shown} has no job {start}")
    if len(found) > 1:
        raise UsageError(f"several jobs begin with {start}: {', '.join(job.id for job in found)}")
    if batch not in {None, found[0].batch}:
        raise UsageError(f"job {found[0].id} is of batch {found[0].batch}, not {batch}")
    return found[0]


def _refuse_others(job: JobRecord, statuses: Sequence[Status], verb: str) -> None:
    if job.status not in statuses:
        raise UsageError(f"job {job.id} is {job.status}, not dead: there is nothing to {verb}")


def _report(jobs: Sequence[JobRecord], *, as_json: bool) -> None:
    if as_json:
        print_lines([short_row(job) for job in jobs])
    for job in jobs:
        say(f"job {job.id} of batch {job.batch}: now {job.status}")
    if not jobs:
        say("no dead letters")
