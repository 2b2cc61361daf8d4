"""The stages in order, for whoever drives them: the command without Prefect, or a flow."""

import asyncio
import gc
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path

from comfyfarm.addresses import mask
from comfyfarm.cache.hydrate import hydrate, missing
from comfyfarm.cache.keeper.holding import held
from comfyfarm.cache.keeper.keeper import Held, Keeper
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.objects import S3Access
from comfyfarm.cache.supply import Supply
from comfyfarm.clock import SystemClock
from comfyfarm.errors import JobConflict, StoreError, UsageError
from comfyfarm.farm.pictures import Pictures
from comfyfarm.farm.prepare import AssetFile, Prepared, prepare_for_all
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.room import refuse_what_cannot_fit, short_of_vram
from comfyfarm.farm.servers import Server
from comfyfarm.farm.shard import OnLate, Shard
from comfyfarm.farm.sources import Sources
from comfyfarm.farm.work import Batchwork
from comfyfarm.ledger.ledger import Ledger
from comfyfarm.ledger.owner import this_owner
from comfyfarm.ledger.records import UNFINISHED, BatchRecord
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.outputs.collect import Spool
from comfyfarm.outputs.store import open_output_store

logger = logging.getLogger(__name__)

BytesBar = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Shows the way to so many bytes while it is open; what it gives moves it on by so many."""


def plan_request(request: RenderRequest, sources: Sources, servers: Sequence[Server]) -> Prepared:
    """Preflight: checked against the node schemas of the servers themselves.

    Raises:
        InputError: with everything that is wrong, at once.
    """
    prepared = prepare_for_all(request, sources, [server.node_schema for server in servers])
    for warning in (*prepared.warnings, *short_of_vram(prepared.models, servers)):
        logger.warning("%s", warning)
    return prepared


async def bring_models(
    request: RenderRequest,
    models: Sequence[LockedModel],
    bytes_bar: BytesBar,
    *,
    supply: Supply,
    keeper: Keeper,
) -> None:
    """Have model files in this host's cache, several at once, and linked where its servers look.

    Raises:
        NoRoom: the disk cannot hold them.
        TransferError: no source gave the bytes of some, all of them named.
        ForeignFile: files that are not ours lie where links should go.
    """
    await asyncio.to_thread(refuse_what_cannot_fit, models, keeper, request.models_dir)
    with bytes_bar(sum(model.size for model in missing(models, keeper.blobs))) as advance:
        await hydrate(models, supply=supply, keeper=keeper, on_bytes=lambda _model, count: advance(count))
    if request.models_dir is not None:
        await asyncio.to_thread(keeper.link, models, request.models_dir)


def models_held(
    request: RenderRequest, prepared: Prepared, keeper: Keeper
) -> AbstractAsyncContextManager[Held]:
    """Nothing that the batch needs is evicted while this is open; room for what is missing is made first.

    Raises:
        NoRoom: they do not fit.
    """
    # Without a folder to link them into, the servers' models are their own affair.
    models = prepared.models if request.models_dir is not None else ()
    return held(keeper, models, who=f"batch {prepared.batch}")


async def with_what_waits(ledger: Ledger, prepared: Prepared) -> Prepared:
    """With what the jobs of earlier calls need that are still to be rendered: a shard runs them, too.

    Raises:
        JobConflict: the batch's outputs go elsewhere already.
    """
    merged = await _with_earlier(ledger, prepared)
    if merged is prepared:
        return prepared
    mine = {job.id for job in prepared.jobs}
    jobs = await ledger.jobs(prepared.batch)
    waits = any(job.status in UNFINISHED and job.id not in mine for job in jobs)
    return merged if waits else prepared


async def record_batch(ledger: Ledger, request: RenderRequest, prepared: Prepared) -> None:
    """Write the batch into the ledger; the very same batch again changes nothing.

    Raises:
        UsageError: its outputs go to a folder that cannot be written.
        JobConflict: a job's id is known with other content, or in another batch.
    """
    await _check_out(prepared.out)
    merged = await _with_earlier(ledger, prepared)
    plan = merged.model_dump(mode="json", exclude={"jobs", "graphs", "warnings", "unfit"})
    kept = json.dumps({"request": request.model_dump(mode="json"), "plan": plan}, sort_keys=True)
    batch = BatchRecord(name=prepared.batch, out=prepared.out, parameters_json=kept)
    await ledger.add_batch(batch, prepared.graphs, prepared.jobs)


async def _check_out(address: str) -> None:
    """A folder that takes nothing is noticed before anything is rendered; a bucket may know only writes."""
    place = open_output_store(address)
    if isinstance(place, FolderPlace):
        try:
            await place.check_writable()
        except StoreError as exc:
            raise UsageError(f"outputs cannot go to {place.address}: {exc}") from exc


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
    needed = dict.fromkeys((*earlier.needed, *prepared.needed))
    return prepared.model_copy(
        update={
            "models": tuple(models.values()),
            "assets": _assets_of_both(earlier, prepared),
            "needed": tuple(needed),
        }
    )


def _assets_of_both(earlier: Prepared, prepared: Prepared) -> tuple[AssetFile, ...]:
    """The same graph may have lain in another folder then: the earlier jobs keep what they had."""
    both = {one.key: one for one in earlier.assets}
    new = {one.key: one for one in prepared.assets}
    for job in prepared.jobs:
        for name in {one.name for one in new.values() if one.graph_digest == job.graph_digest}:
            mine = new.get((job.id, name)) or new[job.graph_digest, name]
            known = both.get((job.id, name)) or both.setdefault((job.graph_digest, name), mine)
            if not known.is_same(mine):
                mine = mine.model_copy(update={"job": job.id})
                both[mine.key] = mine
    return tuple(both.values())


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
    keeps_pictures: bool = True,
    on_late: OnLate | None = None,
) -> AsyncIterator[Shard]:
    """A shard that is ready to take jobs; its claims are renewed while it is open.

    `keeps_pictures`: thumbnails, for whoever shows a contact sheet afterwards. `on_late`: told of each job
    that came too late to be begun.
    """
    shard = Shard(
        Batchwork(prepared, {server.url: server.node_schema for server in servers}),
        servers,
        request=request,
        ledger=ledger,
        store=open_output_store(prepared.out, access=access),
        spool=Spool(state_dir / "spool" / hashlib.sha256(ledger.shown.encode()).hexdigest()[:8]),
        pictures=Pictures(state_dir, prepared.batch) if keeps_pictures else None,
        owner=this_owner(),
        clock=SystemClock(),
        on_late=on_late,
        shard_id=shard_id,
    )
    # What is loaded by now is here to stay, node schemas above all: it need not be searched for garbage.
    gc.freeze()
    try:
        async with shard:
            yield shard
    finally:
        gc.unfreeze()
