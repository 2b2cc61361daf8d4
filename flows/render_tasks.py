"""The tasks of a render: thin, since every decision is the core's. Named as people see them."""

import json
import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE, CacheKeyFnPolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.states import Failed
from prefect.tasks import Task

from comfyfarm.cache.byte_progress import FileMeter
from comfyfarm.cache.hydrate import hydrate_one
from comfyfarm.cache.supply import Suppliers
from comfyfarm.clock import SystemClock
from comfyfarm.errors import AttemptFailed, CorruptBytes, StoreError, TryLater
from comfyfarm.farm.prepare import Prepared
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import Server
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.sources import Sources
from comfyfarm.farm.stage import plan_request
from comfyfarm.farm.supplies import keeper_from
from comfyfarm.farm.taken import TakenJob
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.run.retry import Dead, Retry, RetryPolicy, delay_cap_s, jittered_s
from comfyfarm.settings import read_settings
from flows.dead_letter import announce_dead_letter
from flows.show_preflight import show_preflight


def preflight_key(_context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """Content of everything that preflight looks at: files, request, node schema."""
    request: RenderRequest = parameters["request"]
    asked = request.model_dump_json(exclude={"servers", "deadlines", "retries"})
    # In their order: the first one's word counts where they differ.
    schemas = dict.fromkeys(server.node_schema.offers_sha256 for server in parameters["servers"])
    digest = sha256("\n".join([asked, parameters["sources"].digest(), *schemas]).encode()).hexdigest()
    return f"preflight/v3/{digest}"


def hydrate_key(_context: TaskRunContext, parameters: dict[str, Any]) -> str:
    """The file on this host's cache."""
    place = sha256(str(parameters["cache_dir"]).encode()).hexdigest()[:12]
    return f"hydrate/v3/{parameters['host']}/{place}/{parameters['model'].sha256}"


async def may_succeed_later(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry what the core says may pass; the wait that a server asked for comes on top.

    Looks at `state.data`: `state.result()` of an async task is a coroutine that never raises.
    """
    error = state.data
    if not isinstance(error, AttemptFailed | StoreError):
        return False
    if isinstance(error, AttemptFailed) and error.least_s > 0:
        await SystemClock().sleep(error.least_s)
    get_run_logger().warning("tried again: %s", error)
    return True


async def may_come_later(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry a file that may come by itself: wrong bytes were asked for anew already, and come again."""
    return isinstance(state.data, TryLater) and not isinstance(state.data, CorruptBytes)


def full_jitter(policy: RetryPolicy) -> list[float]:
    """Delays before each retry, in seconds. Prefect's own jitter is not uniform."""
    caps = [delay_cap_s(retry, policy) for retry in range(policy.attempts - 1)]
    return [jittered_s(cap, random.random()) for cap in caps]


@task(name="preflight", cache_policy=CacheKeyFnPolicy(cache_key_fn=preflight_key), result_serializer="json")
async def preflight(request: RenderRequest, sources: Sources, servers: Sequence[Server]) -> dict[str, Any]:
    """Check every graph, pin its models, find its inputs: before anything is paid for."""
    await show_preflight(request, sources, servers[0].node_schema)
    prepared = plan_request(request, sources, servers)
    get_run_logger().info(
        "%d jobs, %d models, %d input files", len(prepared.jobs), len(prepared.models), len(prepared.assets)
    )
    dumped: dict[str, Any] = json.loads(prepared.model_dump_json())
    return dumped


@task(
    name="hydrate",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=hydrate_key),
    result_serializer="json",
    retries=2,
    retry_delay_seconds=[1, 5],
    retry_condition_fn=may_come_later,
)
async def hydrate(
    model: LockedModel,
    host: str,
    cache_dir: Path,
    suppliers: Suppliers,
    on_bytes: Callable[[int], None],
) -> dict[str, Any]:
    """Have one model file in the host's cache, verified; how long its bytes took, and whether any came."""
    meter = FileMeter(f"{model.title} on {host}", model.size, get_run_logger().info)
    clock, came_bytes = SystemClock(), 0
    began_at = clock.monotonic()

    def count_bytes(count: int) -> None:
        nonlocal came_bytes
        came_bytes += count
        meter.add(count)
        on_bytes(count)

    keeper = keeper_from(read_settings(), cache_dir)
    brought = await hydrate_one(model, supply=suppliers, keeper=keeper, on_bytes=count_bytes)
    meter.end()
    source = brought.offer.address if brought.offer is not None else ""
    return {"fetched": came_bytes > 0, "seconds": clock.monotonic() - began_at, "source": source}


@task(name="lane", cache_policy=NO_CACHE, persist_result=False)
async def lane(shard: Shard, url: str) -> None:
    """Hold one GPU slot for the length of the shard, and work through jobs on its server."""
    await shard.lanes.work(url)


@task(name="render", cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=may_succeed_later)
async def render(shard: Shard, job: TakenJob) -> str | State[Any]:
    """One job. A failed attempt is raised, so that Prefect waits and people see it; no GPU is held then.

    Raises:
        AttemptFailed: another attempt follows.
    """
    step = await shard.render(job)
    if isinstance(step, Retry):
        raise AttemptFailed(step.reason, step.least_s)
    if isinstance(step, Dead):
        await shard.bury(job, step)
        await announce_dead_letter(job.record, step.outcome)
        # Not raised: the state's message is then the reason alone, and nothing retries it.
        return Failed(message=f"{step.outcome.reason}: {step.outcome.message}")
    return f"{len(job.record.files)} files"


@task(name="sync", cache_policy=NO_CACHE, persist_result=False, retry_condition_fn=may_succeed_later)
async def sync(shard: Shard, job: TakenJob) -> None:
    """Bring a rendered job's outputs to their place; the render is never repeated for it."""
    await shard.sync(job)


def prepared_of(dumped: dict[str, Any]) -> Prepared:
    """The value that `preflight` gave, perhaps from Prefect's cache."""
    return Prepared.model_validate(dumped)
