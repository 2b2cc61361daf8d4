"""The work pool of a host and its three queues."""

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.objects import WorkPool
from prefect.exceptions import ObjectNotFound
from prefect.workers.process import ProcessWorker

QUEUES = {"high": 1, "normal": 2, "low": 3}  # 1 is served first


async def set_up_pool(client: PrefectClient, name: str, *, concurrency: int | None = None) -> WorkPool:
    """Have the pool with its queues; one that exists keeps its type and its template.

    Args:
        client: of the Prefect server.
        name: of the pool.
        concurrency: flow runs at a time; None leaves it as it is. GPUs have limits of their own.
    """
    pool = await _pool(client, name, concurrency)
    if concurrency is not None and pool.concurrency_limit != concurrency:
        await client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=concurrency))
    known = {queue.name: queue for queue in await client.read_work_queues(work_pool_name=name)}
    for queue, priority in QUEUES.items():
        if queue not in known:
            await client.create_work_queue(queue, priority=priority, work_pool_name=name)
        elif known[queue].priority != priority:
            await client.update_work_queue(known[queue].id, priority=priority)
    return await client.read_work_pool(name)


async def _pool(client: PrefectClient, name: str, concurrency: int | None) -> WorkPool:
    try:
        return await client.read_work_pool(name)
    except ObjectNotFound:
        return await client.create_work_pool(
            WorkPoolCreate(
                name=name,
                type=ProcessWorker.type,
                description="The ComfyUI servers of one host.",
                base_job_template=ProcessWorker.get_default_base_job_template(),
                concurrency_limit=concurrency,
            )
        )
