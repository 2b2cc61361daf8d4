"""The stages in order, for whoever drives them: the command without Prefect, or a flow."""

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from comfyfarm.addresses import mask
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.hydrate import hydrate_one
from comfyfarm.cache.layout import link_models
from comfyfarm.cache.objects import S3Access
from comfyfarm.clock import SystemClock
from comfyfarm.errors import JobConflict
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.prepare import Prepared, Sources, prepare
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import Server
from comfyfarm.farm.shard import Shard
from comfyfarm.farm.work import Batchwork
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import this_owner
from comfyfarm.ledger.records import BatchRecord
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.outputs.collect import Spool
from comfyfarm.outputs.store import open_output_store

logger = logging.getLogger(__name__)


def plan_request(request: RenderRequest, sources: Sources, servers: Sequence[Server]) -> Prepared:
    """Preflight: checked against the node schema of the servers themselves.

    Raises:
        InputError: with everything that is wrong, at once.
    """
    prepared = prepare(request, sources, servers[0].node_schema)
    for warning in prepared.warnings:
        logger.warning("%s", warning)
    return prepared


async def hydrate_file(
    model: LockedModel, *, mirror: str | None, cache_dir: Path, access: S3Access | None = None
) -> Path:
    """Have one model file in this host's cache, verified."""
    return await hydrate_one(model, mirror=mirror, blobs=BlobStore(cache_dir), access=access)


def place_models(models: Sequence[LockedModel], *, cache_dir: Path, models_dir: Path) -> tuple[Path, ...]:
    """Link cached files to where the servers look for them."""
    return link_models(models, BlobStore(cache_dir), models_dir)


async def record_batch(ledger: Ledger, request: RenderRequest, prepared: Prepared) -> None:
    """Write the batch into the ledger; the very same batch again changes nothing.

    Raises:
        JobConflict: a job's id is known with other content, or in another batch.
    """
    merged = await _with_earlier(ledger, prepared)
    plan = merged.model_dump(mode="json", exclude={"jobs", "graphs", "warnings"})
    kept = json.dumps({"request": request.model_dump(mode="json"), "plan": plan}, sort_keys=True)
    batch = BatchRecord(name=prepared.batch, out=prepared.out, parameters_json=kept)
    await ledger.add_batch(batch, prepared.graphs, prepared.jobs)


async def _with_earlier(ledger: Ledger, prepared: Prepared) -> Prepared:
    """A batch may grow by a second call: what the jobs of both need, the newer word last.

    Raises:
        JobConflict: the batch's outputs go elsewhere already.
    """
    if prepared.batch not in {batch.name for batch in await ledger.batches()}:
        return prepared
    _, earlier = await load_batch(ledger, prepared.batch)
    if earlier.out != prepared.out:
        raise JobConflict(
            f"batch {prepared.batch!r} sends its outputs to {mask(earlier.out)}; use that, or another --batch"
        )
    models = {(one.folder, one.path): one for one in (*earlier.models, *prepared.models)}
    assets = {(one.graph_digest, one.name): one for one in (*earlier.assets, *prepared.assets)}
    needed = dict.fromkeys((*earlier.needed, *prepared.needed))
    return prepared.model_copy(
        update={"models": tuple(models.values()), "assets": tuple(assets.values()), "needed": tuple(needed)}
    )


async def load_batch(ledger: Ledger, name: str) -> tuple[RenderRequest, Prepared]:
    """What `record_batch` wrote, but for the jobs: a shard takes those one by one.

    Raises:
        UsageError: the ledger has no such batch.
    """
    batch = await ledger.batch(name)
    kept = json.loads(batch.parameters_json)
    digests = {job.graph_digest for job in await ledger.jobs(name)}
    graphs = {digest: await ledger.graph(digest) for digest in digests}
    plan = {**kept["plan"], "jobs": (), "graphs": graphs, "warnings": ()}
    return RenderRequest.model_validate(kept["request"]), Prepared.model_validate(plan)


@asynccontextmanager
async def open_shard(
    request: RenderRequest,
    prepared: Prepared,
    servers: Sequence[Server],
    *,
    ledger: Ledger,
    state_dir: Path,
    access: S3Access | None = None,
    shard_id: str | None = None,
) -> AsyncIterator[Shard]:
    """A shard that is ready to take jobs; its claims are renewed while it is open."""
    shard = Shard(
        Batchwork(prepared, servers[0].node_schema),
        servers,
        request=request,
        ledger=ledger,
        store=open_output_store(prepared.out, access=access),
        spool=Spool(state_dir / "spool"),
        pictures=Pictures(state_dir, prepared.batch),
        owner=this_owner(),
        clock=SystemClock(),
        shard_id=shard_id,
    )
    async with shard:
        yield shard
