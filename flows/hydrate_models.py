"""The flow `hydrate-models`: the model files of a lock to a host ahead of time."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import deployment
from prefect.runtime import flow_run as runtime_run
from prefect.states import Completed
from pydantic import Field

from blocks.comfy_host import ComfyHost
from comfyfarm.addresses import read_bytes
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.byte_progress import megabytes
from comfyfarm.cache.hydrate import missing
from comfyfarm.clock import SystemClock
from comfyfarm.errors import UsageError
from comfyfarm.farm.hydration import Destination, ModelRow
from comfyfarm.farm.servers import host_slug
from comfyfarm.farm.sources import INLINE, LOCK_LIMIT_BYTES, WORKFLOW_LIMIT_BYTES
from comfyfarm.farm.supplies import keeper_from
from comfyfarm.lock.lockfile import Lock, LockedModel, read_lock
from comfyfarm.plan.order_of_models import Ranks, order_models
from comfyfarm.plan.order_of_use import ranks_of_files
from comfyfarm.settings import read_settings
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import counted
from flows.attempt_cap import refuse_endless_restart
from flows.bring_models import bring_models
from flows.log_forwarding import forward_core_logs
from flows.named_places import address_or_json, mirror_place

# Two tabs in the dashboard's form, as in render_batch. No parameter may be None.
AddressOrJson = Annotated[str, Field(title="Address")] | Annotated[dict[str, Any], Field(title="JSON")]


def run_name() -> str:
    """Of the host; a deployed run keeps the name that it was given."""
    if runtime_run.id and deployment.id and runtime_run.name:
        return str(runtime_run.name)
    return f"models to {runtime_run.parameters.get('host') or host_slug()}"


@flow(name="hydrate-models", flow_run_name=run_name)
async def hydrate_models(
    lock: AddressOrJson = "",
    host: str = "",
    mirror: str = "",
    cache_dir: str = "",
    models_dir: str = "",
    workflow: AddressOrJson = "",
    pin: bool = False,
    spread_s: Annotated[float, Field(ge=0)] = 0.0,
) -> Any:
    """Bring the model files of a lock to a host ahead of time; what is there already is not fetched again.

    Args:
        lock: Path or address of the lock, or its JSON.
        host: Name of the comfy-host block with cache and models folder. Empty is the worker's own machine.
        mirror: Where model files come from: mirror/NAME (a block), a folder, or an address. Empty takes the
            lock's own sources.
        cache_dir: Folder for model files, instead of that of the host's block.
        models_dir: Where ComfyUI looks for models, instead of that of the host's block.
        workflow: Path or address of a workflow, or its JSON: what it needs first comes first.
        pin: Keep the files from ever being evicted from the host's cache.
        spread_s: Wait a random time of up to so many seconds, so that many hosts do not begin at once.
    """
    forward_core_logs()
    refuse_endless_restart()
    address, access = await mirror_place(mirror or None)
    cache, models = await _folders(host, cache_dir, models_dir)
    locked = await asyncio.to_thread(_read_lock, address_or_json(lock))
    wanted = await asyncio.to_thread(in_order, locked, address_or_json(workflow))
    if pin:
        names = {model.sha256: model.title for model in wanted}
        pin_all = keeper_from(read_settings(), cache).pin
        await asyncio.to_thread(pin_all, names, who=f"lock {locked.digest}", why="hydrate-models")
    goal = Destination(
        host=host or host_slug(), cache_dir=cache, models_dir=models, mirror=address, access=access
    )
    if spread_s and missing(wanted, BlobStore(cache)):
        await SystemClock().sleep(random.uniform(0, spread_s))
    rows = await bring_models(wanted, goal)
    return Completed(message=_summary(rows))


def _summary(rows: Sequence[ModelRow]) -> str:
    came = [row for row in rows if row.fetched]
    size = megabytes(sum(row.size for row in came))
    return f"{counted(len(came), 'model file')} fetched ({size}), {len(rows) - len(came)} were here"


def in_order(lock: Lock, workflow: str | dict[str, Any]) -> tuple[LockedModel, ...]:
    """The lock's files in the order in which the workflow needs them; without one, as most do.

    Raises:
        InputError: the workflow is none, or not there.
    """
    return order_models(lock.models, _ranks(workflow) if workflow else {})


def _read_lock(lock: str | dict[str, Any]) -> Lock:
    if not lock:
        raise UsageError("no lock is named: give its path, its address, or the JSON itself")
    if isinstance(lock, dict):
        return read_lock(json.dumps(lock).encode(), name=INLINE)
    return read_lock(read_bytes(lock, limit_bytes=LOCK_LIMIT_BYTES), name=lock)


def _ranks(workflow: str | dict[str, Any]) -> Ranks:
    schema = NodeSchema.shipped()
    if isinstance(workflow, dict):
        return ranks_of_files({INLINE: json.dumps(workflow).encode()}, schema)
    return ranks_of_files({workflow: read_bytes(workflow, limit_bytes=WORKFLOW_LIMIT_BYTES)}, schema)


async def _folders(host: str, cache_dir: str, models_dir: str) -> tuple[Path, Path | None]:
    """Cache and models folder: as given, else as the host's block says. A named host must have a block."""
    try:
        block = await ComfyHost.named(host or host_slug())
    except UsageError:
        if host and not cache_dir:
            raise
        block = None
    cache = cache_dir or (block and block.cache_dir) or read_settings().cache_dir
    models = models_dir or (block and block.models_dir)
    return Path(cache).absolute(), Path(models).absolute() if models else None
