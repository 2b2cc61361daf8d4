"""The flow `render-batch`: preflight once, hydrate, render on the host's servers, show what came of it."""

import asyncio
import json
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import CancelledRun
from prefect.flows import Flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as runtime_run
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from comfyfarm.addresses import mask
from comfyfarm.cache.places.objects import S3Access
from comfyfarm.cli.edge import log_to_stderr
from comfyfarm.errors import FarmError, TryLater, UsageError
from comfyfarm.farm.ending import interrupt_left
from comfyfarm.farm.hydration import Destination
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.prepare import Prepared
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, rows_of
from comfyfarm.farm.servers import Server, eligible, examine_all, refuse_passwords, suited
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import models_held, record_batch, with_what_waits
from comfyfarm.farm.stopping import Listen, Stop, run_until_stopped
from comfyfarm.farm.supplies import keeper_from
from comfyfarm.lock.project_file import project_of
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.retry import RetryPolicy
from comfyfarm.settings import read_settings
from flows.attempt_cap import refuse_endless_restart
from flows.bring_models import bring_models
from flows.farm_ledger import farm_ledger
from flows.gpu_limits import set_gpu_limits
from flows.log_forwarding import forward_core_logs
from flows.main_thread import run_beside_signals
from flows.named_places import address_or_json, host_fields, mirror_place, output_place
from flows.render_shard import render_shard
from flows.render_tasks import preflight, prepared_of
from flows.server_settings import is_ours, warn_of_settings
from flows.show_results import show_results

logger = logging.getLogger("comfyfarm.flows.render_batch")

# Two tabs in the dashboard's form. No parameter may be None: each would be hidden behind a tab "None".
AddressOrJson = Annotated[str, Field(title="Address")] | Annotated[dict[str, Any], Field(title="JSON")]


async def interrupt_prompts(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """`on_cancellation`: once more, from the ledger alone, for a run whose process is gone."""
    async with get_client() as client:
        # The shard's run knows the batch's name, also where none was given.
        shards = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id]))
        )
    async with farm_ledger(flow_run.parameters.get("ledger") or None) as ledger:
        for batch in {shard.parameters["batch"] for shard in shards}:
            await interrupt_left(ledger, batch)


def run_name() -> str:
    """The batch's name, else what it is made of; a deployed run keeps the name that it was given."""
    if runtime_run.id and deployment.id and runtime_run.name:
        return str(runtime_run.name)
    given = runtime_run.parameters
    source = given.get("job_file") or given.get("workflow")
    stem = Path(source).stem if isinstance(source, str) and not source.lstrip().startswith("{") else ""
    return str(given.get("batch") or stem or "workflow")


@flow(name="render-batch", flow_run_name=run_name, on_cancellation=[interrupt_prompts])
async def render_batch(
    workflow: AddressOrJson = "",
    job_file: str = "",
    overrides: dict[str, Any] = {},  # noqa: B006 - never changed; the form shows it
    lock: AddressOrJson = "",
    out: str = "output-store/default",
    batch: str = "",
    host: str = "",
    mirror: str = "",
    servers: list[str] = [],  # noqa: B006
    cache_dir: str = "",
    models_dir: str = "",
    inputs_dir: str = "",
    ledger: str = "",
    project: dict[str, Any] = {},  # noqa: B006
    deadlines: dict[str, float] = {},  # noqa: B006
    attempts: int = 4,
) -> State[Any]:
    """Render a workflow, or every job of a job file, exactly once; the same parameters again go on.

    Args:
        workflow: A workflow of any format: a path or address that the worker can open, or the JSON itself.
        job_file: Instead of a workflow: path or address of a file with one job a line.
        overrides: Values put into every job's graph, such as {"3.seed": 7}.
        lock: Path or address of the lock, or its JSON. Empty takes comfyfarm.lock beside the workflow.
        out: Where outputs go: output-store/NAME (a block), a folder, or s3://bucket/prefix.
        batch: Name of the batch. Empty makes one of its contents, so that the same run again goes on.
        host: Name of the comfy-host block with the servers. Empty is the worker's own machine; servers that
            are given here belong to this host, or with an empty name to the one that their address names.
        mirror: Where model files come from: mirror/NAME (a block), a folder, or an address.
        servers: Base addresses of ComfyUI servers, instead of those of the host's block.
        cache_dir: Folder for model files, instead of that of the host's block.
        models_dir: Where the servers look for models. Without it nothing is downloaded.
        inputs_dir: Folder of input images, audio and video.
        ledger: Name of the ledger block. Empty takes COMFYFARM_LEDGER.
        project: Chosen node packs and what is let in, as in comfyfarm.toml, such as
            {"policy": {"allow_pickle_sha256": []}}.
        deadlines: Seconds for each phase of a job, such as {"execution_s": 1200, "no_progress_s": 600}.
        attempts: Tries of a job in all.
    """
    forward_core_logs()
    refuse_endless_restart()
    out_address, _ = await output_place(out)
    mirror_address, mirror_access = await mirror_place(mirror or None)
    given = {
        "servers": servers,
        "cache_dir": cache_dir,
        "models_dir": models_dir,
        "inputs_dir": inputs_dir,
    }
    request = RenderRequest(
        workflow=address_or_json(workflow) or None,
        job_file=job_file or None,
        overrides=overrides or {},
        lock=address_or_json(lock) or None,
        batch=batch or None,
        out=out_address,
        project=project_of(project, name="parameter project"),
        deadlines=Deadlines.model_validate(deadlines),
        retries=RetryPolicy(attempts=attempts),
        mirror=mirror_address,
        **await host_fields(host or None, given),
    )
    async with farm_ledger(ledger or None) as opened:
        # The host's own servers are all of it; others are of the host that their address names.
        belongs_to = host or (None if servers else request.host)
        prepared, able = await _preflight(request, belongs_to)
        prepared = await with_what_waits(opened, prepared)
        async with models_held(request, prepared, keeper_from(read_settings(), request.cache_dir)):
            if request.models_dir is not None:
                await set_gpu_limits(opened, request.host)  # a tag without a limit would be unlimited
                await _hydrate(request, prepared, mirror_access)
                able = await examine_all([server.url for server in able], belongs_to)
            # Before it is recorded: a batch that no server can run leaves nothing in the ledger.
            able = eligible(able, prepared.needed)
            await record_batch(opened, request, prepared)
            try:
                await render_shard(
                    prepared.batch,
                    request.host,
                    {server.url: server.host for server in able},
                    out=out,
                    ledger=ledger or None,
                )
            except CancelledRun:
                return Cancelled(message="cancelled; its prompts are interrupted")
        rows = await rows_of(opened, prepared.batch, prepared.jobs)
    pictures = Pictures(read_settings().state_dir, prepared.batch).load()
    await show_results(prepared.batch, rows, pictures)
    return end_state(rows)


async def _preflight(request: RenderRequest, host: str | None) -> tuple[Prepared, tuple[Server, ...]]:
    """Plan and pins, by Prefect's cache when nothing has changed; the servers that can run it.

    Input files may have gone since: then it is done anew.
    """
    sources = await asyncio.to_thread(read_sources, request)
    servers = await examine_all(request.servers, host)
    prepared = prepared_of(await preflight(request, sources, servers))
    if not all(asset.file.is_file() for asset in prepared.assets):
        again = preflight.with_options(refresh_cache=True)
        prepared = prepared_of(await again(request, sources, servers))
    return prepared, suited(servers, prepared.unfit)


async def _hydrate(request: RenderRequest, prepared: Prepared, access: S3Access | None) -> None:
    goal = Destination(
        host=request.host,
        cache_dir=request.cache_dir,
        models_dir=request.models_dir,
        mirror=request.mirror,
        access=access,
    )
    await bring_models(prepared.models, goal)


def end_state(rows: Sequence[ResultRow]) -> State[Any]:
    """`Completed` when all jobs succeeded; else `Failed`, with the counts. Never by one job's exception."""
    counts = Counter(row.status for row in rows if row.status != "succeeded")
    bad = ", ".join(f"{count} of {len(rows)} jobs {status}" for status, count in sorted(counts.items()))
    done = "1 job succeeded" if len(rows) == 1 else f"{len(rows)} jobs succeeded"
    return Failed(message=bad) if bad else Completed(message=done)


async def _main(parameters: dict[str, Any], listen: Listen) -> int:
    """Run the flow as the command's child: 0 when it ran to its end, else the error's exit code."""
    given = {name: value for name, value in parameters.items() if value is not None}
    stop = Stop(grace_s=read_settings().grace_s)
    try:
        refuse_passwords(given.get("servers", ()), where="or pass --local")
        await _look_at_prefect()
        state = await run_until_stopped(render_batch(**given, return_state=True), stop, listen=listen)
    except asyncio.CancelledError:
        return 0 if stop.was_terminated else 3  # its jobs are given back
    except (TryLater, UsageError) as exc:
        sys.stderr.write(f"comfyfarm: {exc}\n")
        return exc.exit_code
    except Exception:
        # Of Prefect's client as a rule. Python's own exit code would say that the workflow is at fault.
        logger.exception("the flow broke; the same call goes on where it was")
        return TryLater.exit_code
    error = state.data if isinstance(state.data, BaseException) else None
    if isinstance(error, FarmError):
        sys.stderr.write(f"comfyfarm: {error}\n")
        return error.exit_code
    return 0 if error is None else 3


async def _look_at_prefect() -> None:
    """Warn of what a farm needs of a Prefect server that is not the control server, once for each run.

    Raises:
        TryLater: it does not answer.
    """
    settings = read_settings()
    async with get_client() as client:
        fault = await client.api_healthcheck()
        if fault is not None:
            raise TryLater(f"the Prefect server {mask(str(client.api_url))} does not answer: {fault}")
        if not is_ours(str(client.api_url), settings):
            for note in await warn_of_settings(client):
                logger.warning("the Prefect server: %s", note)


def _show_core_logs(*, verbose: bool) -> None:
    """On stderr by ourselves: Prefect's own way would show nothing of the core, or all of it."""
    log_to_stderr(verbose=verbose)
    logging.getLogger("comfyfarm").propagate = False


if __name__ == "__main__":
    _show_core_logs(verbose="--verbose" in sys.argv[1:])
    given_parameters = json.load(sys.stdin)
    sys.exit(run_beside_signals(lambda listen: asyncio.run(_main(given_parameters, listen))))
