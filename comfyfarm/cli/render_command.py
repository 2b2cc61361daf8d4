"""`comfyfarm render`: the whole road. Without `--local` the flow does the work, in one child process."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from comfyfarm.addresses import expanded, is_address, mask
from comfyfarm.cli.edge import ends_with_exit_code, log_to_stderr, runs_to_its_end, say
from comfyfarm.cli.flow_child import run_flow
from comfyfarm.cli.given_overrides import read_given
from comfyfarm.cli.pack_options import load_project
from comfyfarm.cli.progress import RenderBars, render_bars
from comfyfarm.cli.rows import print_rows
from comfyfarm.clock import SystemClock
from comfyfarm.errors import FarmError, InputError, TryLater, UsageError
from comfyfarm.farm.ledgers import Backends, render_backends
from comfyfarm.farm.local import render_here
from comfyfarm.farm.prepare import plan_jobs
from comfyfarm.farm.ready import Planned
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, exit_code, rows_of
from comfyfarm.farm.servers import host_of, host_slug
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stopping import Stop
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import FINISHED, Status
from comfyfarm.run.deadlines import read_deadlines
from comfyfarm.run.retry import RetryPolicy
from comfyfarm.settings import FarmSettings, read_settings
from comfyfarm.workflow.shown import counted
from comfyfarm.workflow.strict import is_unicode

_JOB_FILES = (".jsonl", ".ndjson")


@click.command("render")
@click.argument("source", metavar="WORKFLOW|JOBS.jsonl")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NODE.INPUT=VALUE",
    help="For every job that does not set it itself: a job's own value wins.",
)
@click.option("--lock", metavar="FILE", help="Default: comfyfarm.lock beside the workflow.")
@click.option("--server", "servers", multiple=True, required=True, metavar="URL", help="A ComfyUI server.")
@click.option("--out", required=True, metavar="DIR|s3://bucket/prefix", help="Where outputs go.")
@click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources.")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Where the servers look for models.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Folder of input images, audio, video.")
@click.option("--ledger", metavar="URL", help="sqlite:///PATH or postgresql://…")
@click.option("--batch", metavar="NAME", help="Default: made of the contents.")
@click.option(
    "--deadline",
    "deadlines",
    multiple=True,
    metavar="PHASE=SECONDS",
    help="submit, queue-wait, quiet, no-progress, execution, wedged, collect, cancel.",
)
@click.option("--attempts", type=click.IntRange(1), help="Tries of a job in all. Default: 4.")
@click.option("--grace", type=click.FloatRange(0), help="Seconds for running prompts at a stop. Default: 30.")
@click.option("--local", is_flag=True, help="Without Prefect.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each job.")
@click.option("-v", "--verbose", is_flag=True, help="Say what happens.")
@ends_with_exit_code
def command(
    ledger: str | None, *, grace: float | None, local: bool, as_json: bool, verbose: bool, **asked: object
) -> None:
    """Render a workflow, or every job of a job file, exactly once. The same call again goes on."""
    log_to_stderr(verbose=verbose)
    settings = read_settings()
    if grace is not None:
        settings = settings.model_copy(update={"grace_s": grace})
    request = _request(settings, **asked)  # type: ignore[arg-type]
    planned = plan_jobs(request, read_sources(request))
    request = request.model_copy(update={"batch": planned.batch})
    with render_backends(settings, ledger, local=local, on_line=say) as backends:
        rows, code = asyncio.run(_render(request, planned, backends, settings, verbose=verbose))
    if rows:
        print_rows(rows, "json" if as_json else "table")
    _tell_of_dead(rows, ledger, local=local)
    sys.exit(code)


def _tell_of_dead(rows: Sequence[ResultRow], ledger: str | None, *, local: bool) -> None:
    """One line on stderr, whatever form the rows have. A ledger's address may hold a password."""
    count = sum(row.status == Status.DEAD for row in rows)
    if count:
        subject = "1 job is" if count == 1 else f"{count} jobs are"
        where = " with the same --ledger" if ledger else " --local" if local else ""
        say(f"{subject} dead: see comfyfarm dead-letters list{where}")


def _request(
    settings: FarmSettings,
    *,
    source: str,
    overrides: tuple[str, ...],
    lock: str | None,
    servers: tuple[str, ...],
    out: str,
    mirror: str | None,
    cache: Path | None,
    models_dir: Path | None,
    inputs: Path | None,
    batch: str | None,
    deadlines: tuple[str, ...],
    attempts: int | None,
) -> RenderRequest:
    for url in servers:
        host_of(url)  # whether it is an address at all
    for name in (source, *servers, lock, out, mirror, cache, models_dir, inputs, batch):
        if not is_unicode(str(name)):
            raise UsageError(f"'{mask(str(name))}': is no valid UTF-8; name it otherwise")
    if models_dir is not None and not models_dir.is_dir():
        say(f"{models_dir}: there is no such folder yet; it is made, and the servers have to look there")
    source = _absolute(source)
    is_job_file = source.lower().endswith(_JOB_FILES)
    return RenderRequest(
        workflow=None if is_job_file else source,
        job_file=source if is_job_file else None,
        overrides={str(one): one.value for one in read_given(overrides)},
        lock=_absolute(lock) if lock else None,
        out=_absolute(out),
        servers=tuple(url.rstrip("/") for url in servers),
        batch=batch,
        mirror=_absolute(mirror) if mirror else None,
        cache_dir=(cache or settings.cache_dir).absolute(),
        models_dir=models_dir.absolute() if models_dir else None,
        inputs_dir=inputs.absolute() if inputs else None,
        host=host_slug(),
        project=load_project(None, source),
        deadlines=read_deadlines(deadlines),
        retries=RetryPolicy() if attempts is None else RetryPolicy(attempts=attempts),
    )


def _absolute(name: str) -> str:
    """The flow runs in another directory."""
    return name if is_address(name) else str(expanded(Path(name)).absolute())


async def _render(
    request: RenderRequest, planned: Planned, backends: Backends, settings: FarmSettings, *, verbose: bool
) -> tuple[list[ResultRow], int]:
    ledger = await open_ledger(backends.ledger_url.get_secret_value())
    stop, fault = Stop(grace_s=settings.grace_s), 0
    try:
        if await _is_done(ledger, planned):
            say(f"{counted(len(planned.jobs), 'job')} done before: nothing is rendered again")
        else:
            fault = await _run(request, ledger, backends, settings, stop=stop, verbose=verbose)
        rows = await rows_of(ledger, planned.batch, planned.jobs)
    finally:
        await ledger.close()
    if fault == UsageError.exit_code:  # nothing started: what the ledger has may be other people's
        return [], fault
    if stop.was_terminated and fault == 0:  # in order, as it was told to
        return rows, 0
    return rows, fault if fault == InputError.exit_code else exit_code(rows) or fault


async def _is_done(ledger: Ledger, planned: Planned) -> bool:
    """Whether the ledger has every one of these jobs, with this content, at its end."""
    known = {job.id: job for job in await ledger.jobs(planned.batch)}
    return all(
        job.id in known
        and known[job.id].content_digest == job.content_digest
        and known[job.id].status in FINISHED
        for job in planned.jobs
    )


async def _run(
    request: RenderRequest,
    ledger: Ledger,
    backends: Backends,
    settings: FarmSettings,
    *,
    stop: Stop,
    verbose: bool,
) -> int:
    """Do the work; 0, or the exit code of what stopped it."""
    batch = str(request.batch)
    with render_bars(batch) as bars:
        watcher = asyncio.create_task(_watch(ledger, batch, bars))
        try:
            if backends.prefect_api_url is None:
                here = render_here(request, ledger, settings=settings, bytes_bar=bars.bytes_bar)
                return 0 if await runs_to_its_end(here, stop) or stop.was_terminated else TryLater.exit_code
            if backends.ui_url:
                say(f"dashboard {backends.ui_url}")
            return await run_flow(
                request, backends, settings, stop=stop, verbose=verbose, on_bytes=bars.show_bytes
            )
        except FarmError as exc:
            say(f"comfyfarm: {exc}")
            return exc.exit_code
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)


async def _watch(ledger: Ledger, batch: str, bars: RenderBars) -> None:
    while True:
        bars.show_jobs(await ledger.counts(batch))
        await SystemClock().sleep(0.5)
