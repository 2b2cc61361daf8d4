"""`comfyfarm render`: the whole road. Without `--local` the flow does the work, in one child process."""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from comfyfarm.addresses import is_address, mask
from comfyfarm.cli.edge import ends_with_exit_code, log_to_stderr, runs_to_its_end, say
from comfyfarm.cli.flow_child import run_flow
from comfyfarm.cli.progress import jobs_bar
from comfyfarm.cli.rows import print_rows
from comfyfarm.clock import SystemClock
from comfyfarm.errors import FarmError, InputError, TryLater, UsageError
from comfyfarm.farm.ledgers import Backends, render_backends
from comfyfarm.farm.local import render_here
from comfyfarm.farm.prepare import Planned, plan_jobs, read_sources
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, exit_code, row_of
from comfyfarm.farm.servers import host_slug
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.settings import FarmSettings, read_settings
from comfyfarm.workflow.overrides import parse_override

_JOB_FILES = (".jsonl", ".ndjson")


@click.command("render")
@click.argument("source", metavar="WORKFLOW|JOBS.jsonl")
@click.option("--set", "overrides", multiple=True, metavar="NODE.INPUT=VALUE", help="For every job.")
@click.option("--lock", metavar="FILE", help="Default: comfyfarm.lock beside the workflow.")
@click.option("--server", "servers", multiple=True, required=True, metavar="URL", help="A ComfyUI server.")
@click.option("--out", required=True, metavar="DIR|s3://bucket/prefix", help="Where outputs go.")
@click.option("--mirror", metavar="DIR|s3://…|https://…", help="Default: the lock's own sources.")
@click.option("--cache", type=click.Path(path_type=Path), help="Default: the user's cache directory.")
@click.option("--models-dir", type=click.Path(path_type=Path), help="Where the servers look for models.")
@click.option("--inputs", type=click.Path(path_type=Path), help="Folder of input images, audio, video.")
@click.option("--ledger", metavar="URL", help="sqlite:///PATH or postgresql://…")
@click.option("--batch", metavar="NAME", help="Default: made of the contents.")
@click.option("--local", is_flag=True, help="Without Prefect.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each job.")
@click.option("-v", "--verbose", is_flag=True, help="Say what happens.")
@ends_with_exit_code
def command(ledger: str | None, *, local: bool, as_json: bool, verbose: bool, **asked: object) -> None:
    """Render a workflow, or every job of a job file, exactly once. The same call again goes on."""
    log_to_stderr(verbose=verbose)
    settings = read_settings()
    request = _request(settings, **asked)  # type: ignore[arg-type]
    planned = plan_jobs(request, read_sources(request))
    request = request.model_copy(update={"batch": planned.batch})
    with render_backends(settings, ledger, local=local, on_line=say) as backends:
        rows, code = asyncio.run(_render(request, planned, backends, settings))
    if rows:
        print_rows(rows, "json" if as_json else "table")
    sys.exit(code)


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
) -> RenderRequest:
    source = _absolute(source)
    is_job_file = source.lower().endswith(_JOB_FILES)
    return RenderRequest(
        workflow=None if is_job_file else source,
        job_file=source if is_job_file else None,
        overrides={str(one): one.value for one in map(parse_override, overrides)},
        lock=_absolute(lock) if lock else None,
        out=_absolute(out),
        servers=tuple(url.rstrip("/") for url in servers),
        batch=batch,
        mirror=_absolute(mirror) if mirror else None,
        cache_dir=(cache or settings.cache_dir).absolute(),
        models_dir=models_dir.absolute() if models_dir else None,
        inputs_dir=inputs.absolute() if inputs else None,
        host=_host(servers),
    )


def _absolute(name: str) -> str:
    """The flow runs in another directory."""
    return name if is_address(name) else str(Path(name).expanduser().absolute())


def _host(servers: tuple[str, ...]) -> str:
    """The slug of the first server's host; this machine's own name for loopback."""
    names = [_host_name(url) for url in servers]
    return host_slug(None if names[0] in {"127.0.0.1", "localhost", "::1"} else names[0])


def _host_name(url: str) -> str:
    try:
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return parts.hostname
    except ValueError:  # a port that is none, a bracket that is not closed
        pass
    raise UsageError(f"--server {mask(url)}: write an address such as http://127.0.0.1:8188")


async def _render(
    request: RenderRequest, planned: Planned, backends: Backends, settings: FarmSettings
) -> tuple[list[ResultRow], int]:
    ledger = await open_ledger(backends.ledger_url.get_secret_value())
    try:
        if not await _is_done(ledger, planned):
            fault = await _run(request, ledger, backends, settings)
        else:
            fault = 0
        jobs = await ledger.jobs(planned.batch)
        ours = {job.id for job in planned.jobs}
        rows = [row_of(job) for job in jobs if job.id in ours]
    finally:
        await ledger.close()
    if fault == UsageError.exit_code:  # nothing started: what the ledger has may be other people's
        return [], fault
    return rows, fault if fault == InputError.exit_code else exit_code(rows) or fault


async def _is_done(ledger: Ledger, planned: Planned) -> bool:
    """Whether the ledger has every one of these jobs, with this content, at its end."""
    known = {job.id: job for job in await ledger.jobs(planned.batch)}
    return all(
        job.id in known
        and known[job.id].content_digest == job.content_digest
        and known[job.id].status in {"succeeded", "dead", "cancelled"}
        for job in planned.jobs
    )


async def _run(request: RenderRequest, ledger: Ledger, backends: Backends, settings: FarmSettings) -> int:
    """Do the work; 0, or the exit code of what stopped it."""
    batch = str(request.batch)
    with jobs_bar(batch) as show:
        watcher = asyncio.create_task(_watch(ledger, batch, show))
        try:
            if backends.prefect_api_url is None:
                here = render_here(request, ledger, state_dir=settings.state_dir)
                return 0 if await runs_to_its_end(here) else TryLater.exit_code
            if backends.ui_url:
                say(f"dashboard {backends.ui_url}")
            return await run_flow(request, backends, settings)
        except FarmError as exc:
            say(f"comfyfarm: {exc}")
            return exc.exit_code
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)


async def _watch(ledger: Ledger, batch: str, show: object) -> None:
    clock = SystemClock()
    while callable(show):
        show(await ledger.counts(batch))
        await clock.sleep(0.5)
