"""The flow `render-batch`: preflight once, hydrate, render on the host's servers, show what came of it."""

import asyncio
import json
import logging
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import CancelledRun
from prefect.flows import Flow
from prefect.states import Cancelled, Completed, Failed

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.objects import S3Access
from comfyfarm.errors import FarmError
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.prepare import Prepared, read_sources
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, row_of
from comfyfarm.farm.servers import examine_all
from comfyfarm.farm.stage import place_models, record_batch
from comfyfarm.farm.stop import interrupt_left
from comfyfarm.settings import read_settings
from flows.farm_ledger import farm_ledger
from flows.log_forwarding import forward_core_logs
from flows.named_places import host_fields, mirror_place, output_place
from flows.render_shard import render_shard
from flows.render_tasks import hydrate, preflight, prepared_of
from flows.show_results import show_results

logger = logging.getLogger("comfyfarm.flows.render_batch")


async def interrupt_prompts(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:  # noqa: ARG001
    """`on_cancellation`: once more, from the ledger alone, for a run whose process is gone."""
    parameters = flow_run.parameters
    if parameters.get("batch"):
        async with farm_ledger(parameters.get("ledger")) as ledger:
            await interrupt_left(ledger, parameters["batch"])


@flow(name="render-batch", on_cancellation=[interrupt_prompts])
async def render_batch(
    workflow: str | dict[str, Any] | None = None,
    job_file: str | None = None,
    overrides: dict[str, Any] | None = None,
    lock: str | dict[str, Any] | None = None,
    out: str = "output-store/default",
    host: str | None = None,
    batch: str | None = None,
    mirror: str | None = None,
    servers: list[str] | None = None,
    cache_dir: str | None = None,
    models_dir: str | None = None,
    inputs_dir: str | None = None,
    ledger: str | None = None,
) -> State[Any]:
    """Render a workflow, or every job of a job file, exactly once; the same parameters again go on.

    Args:
        workflow: Address of a workflow in API format that the worker can open, or the graph itself.
        job_file: Address of a file with one job a line, instead of a workflow.
        overrides: Values put into every job's graph, such as {"3.seed": 7}.
        lock: Address of the lock, or the lock itself; default is comfyfarm.lock beside the workflow.
        out: A folder, s3://bucket/prefix, or the name of an output-store block.
        host: Name of the comfy-host block with the servers; default is this machine's own.
        batch: Name of the batch; default is made of its contents.
        mirror: Where model files come from: a folder, an address, or the name of a mirror block.
        servers: Base addresses of ComfyUI servers, instead of those of the host's block.
        cache_dir: Folder for model files on the host.
        models_dir: Where the servers look for models; without it nothing is downloaded.
        inputs_dir: Folder of input images, audio and video.
        ledger: Name of the ledger block; default is COMFYFARM_LEDGER.
    """
    forward_core_logs()
    out_address, _ = await output_place(out)
    mirror_address, mirror_access = await mirror_place(mirror)
    given = {
        "servers": servers,
        "cache_dir": cache_dir,
        "models_dir": models_dir,
        "inputs_dir": inputs_dir,
    }
    request = RenderRequest(
        workflow=workflow or None,
        job_file=job_file or None,
        overrides=overrides or {},
        lock=lock or None,
        batch=batch or None,
        out=out_address,
        mirror=mirror_address,
        **await host_fields(host or None, given),
    )
    async with farm_ledger(ledger) as opened:
        prepared = await _preflight(request)
        await _hydrate(request, prepared, mirror_access)
        await record_batch(opened, request, prepared)
        try:
            await render_shard(prepared.batch, request.host, list(request.servers), out=out, ledger=ledger)
        except CancelledRun:
            return Cancelled(message="cancelled; its prompts are interrupted")
        jobs = await opened.jobs(prepared.batch)
    ours = {job.id for job in prepared.jobs}
    rows = [row_of(job) for job in jobs if job.id in ours]
    pictures = Pictures(read_settings().state_dir, prepared.batch).load()
    await show_results(prepared.batch, rows, pictures)
    return end_state(rows)


async def _preflight(request: RenderRequest) -> Prepared:
    """Plan and pins, by Prefect's cache when nothing has changed and the input files are still there."""
    sources = await asyncio.to_thread(read_sources, request)
    servers = await examine_all(request.servers)
    prepared = prepared_of(await preflight(request, sources, servers))
    if not all(asset.file.is_file() for asset in prepared.assets):
        again = preflight.with_options(refresh_cache=True)
        prepared = prepared_of(await again(request, sources, servers))
    return prepared


async def _hydrate(request: RenderRequest, prepared: Prepared, access: S3Access | None) -> None:
    if request.models_dir is None:
        return
    blobs = BlobStore(request.cache_dir)
    await asyncio.gather(
        *(
            hydrate.with_options(
                task_run_name=f"hydrate-{model.path}",
                tags={f"hydrate:{request.host}"},
                # A cached result says that the file was here once: it may have been evicted.
                refresh_cache=not blobs.has(model.sha256, size=model.size),
            )(model, request.host, request.cache_dir, request.mirror, access)
            for model in prepared.models
        )
    )
    await asyncio.to_thread(
        place_models, prepared.models, cache_dir=request.cache_dir, models_dir=request.models_dir
    )


def end_state(rows: Sequence[ResultRow]) -> State[Any]:
    """`Completed` when all jobs succeeded; else `Failed`, with the counts. Never by one job's exception."""
    counts = Counter(row.status for row in rows if row.status != "succeeded")
    bad = ", ".join(f"{count} of {len(rows)} jobs {status}" for status, count in sorted(counts.items()))
    return Failed(message=bad) if bad else Completed(message=f"{len(rows)} jobs succeeded")


async def _main(parameters: dict[str, Any]) -> int:
    """Run the flow as the command's child: 0 when it ran to its end, else the error's exit code."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    state = await render_batch(**parameters, return_state=True)
    error = state.data if isinstance(state.data, BaseException) else None
    if isinstance(error, FarmError):
        sys.stderr.write(f"comfyfarm: {error}\n")
        return error.exit_code
    return 0 if error is None else 3


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(json.load(sys.stdin))))
