"""Model files to a host, each a task run, and what Prefect shows of them: for a render, and ahead of time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.byte_progress import ByteProgress
from comfyfarm.cache.hydrate import missing
from comfyfarm.cache.keeper.holding import held
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.supply import Suppliers
from comfyfarm.clock import SystemClock
from comfyfarm.errors import CorruptBytes, FarmError, TransferError
from comfyfarm.farm.hydration import Destination, ModelRow
from comfyfarm.farm.room import refuse_what_cannot_fit
from comfyfarm.farm.supplies import keeper_from, supply_from
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.settings import read_settings
from comfyfarm.workflow.shown import counted
from flows.gpu_limits import HYDRATE_SLOTS
from flows.hydration_limits import mirror_tag, set_hydration_limits
from flows.render_tasks import hydrate
from flows.show_hydration import (
    show_hydration,
    shown_progress,
    tell_failed,
    tell_hydrated,
    tell_quarantined,
)

logger = logging.getLogger("comfyfarm.flows.bring_models")

OnBytes = Callable[[int], None]
_T = TypeVar("_T")


async def bring_models(models: Sequence[LockedModel], goal: Destination) -> tuple[ModelRow, ...]:
    """Bring every file into the host's cache, and link it where ComfyUI looks.

    They are begun in the order in which they are given, each content once, and shown in Prefect. All are
    tried.

    Raises:
        NoRoom: the disk cannot hold them.
        ForeignFile: files that are not ours lie where links should go.
        TransferError: some did not come, all of them named.
        CorruptBytes: likewise, and a source gave wrong bytes.
        UsageError: the mirror's address is of a kind that is not known.
    """
    keeper = keeper_from(read_settings(), goal.cache_dir)
    await asyncio.to_thread(refuse_what_cannot_fit, models, keeper, goal.models_dir)
    supply = supply_from(read_settings(), mirror=goal.mirror, access=goal.access)
    # One for all files: a peer that gave wrong bytes once is not asked for the next one.
    suppliers = await asyncio.to_thread(Suppliers, supply, cache_root=keeper.blobs.root)
    await set_hydration_limits(goal.host, goal.mirror)
    async with held(keeper, models, who=f"hydration of {goal.host}"):
        rows, faults = await _bring(models, goal, keeper, suppliers)
    await show_hydration(goal.host, rows)
    _raise_failed(goal.host, rows, faults)
    return rows


async def _bring(
    models: Sequence[LockedModel], goal: Destination, keeper: Keeper, suppliers: Suppliers
) -> tuple[tuple[ModelRow, ...], list[FarmError]]:
    blobs = keeper.blobs
    absent = {model.sha256 for model in missing(models, blobs)}
    by_content: dict[str, list[LockedModel]] = {}
    for model in models:
        by_content.setdefault(model.sha256, []).append(model)
    total = sum(same[0].size for sha256, same in by_content.items() if sha256 in absent)
    pipe, slots = ByteProgress(total), asyncio.Semaphore(HYDRATE_SLOTS)
    async with shown_progress(goal.host, total) as show:

        def on_bytes(model: LockedModel, count: int) -> None:
            pipe.add(count, model.title, model.size)
            show(count)

        async def one(same: Sequence[LockedModel]) -> tuple[ModelRow, FarmError | None]:
            async with slots:
                is_absent, told = same[0].sha256 in absent, partial(on_bytes, same[0])
                return await _one(same, goal, keeper, suppliers, is_absent=is_absent, on_bytes=told)

        ended = await _all_ended(one(same) for same in by_content.values())
    return tuple(row for row, _ in ended), [fault for _, fault in ended if fault is not None]


async def _all_ended(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """What came of each. One that breaks leaves none of the others behind: all end before it is raised."""
    ended = await asyncio.gather(*works, return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException):
            raise one
    return [one for one in ended if not isinstance(one, BaseException)]


async def _one(
    same: Sequence[LockedModel],
    goal: Destination,
    keeper: Keeper,
    suppliers: Suppliers,
    *,
    is_absent: bool,
    on_bytes: OnBytes,
) -> tuple[ModelRow, FarmError | None]:
    """One content, under all of its names."""
    model, blobs = same[0], keeper.blobs
    row = ModelRow(title=model.title, sha256=model.sha256, size=model.size)
    before = _quarantined(blobs, model.sha256)
    try:
        told = await _hydrate_once_there_is_a_slot(
            model, goal, suppliers, is_absent=is_absent, on_bytes=on_bytes
        )
        if goal.models_dir is not None:
            await asyncio.to_thread(keeper.link, same, goal.models_dir)
    except FarmError as exc:
        return row.model_copy(update={"error": str(exc)}), exc
    finally:
        if _quarantined(blobs, model.sha256) not in {before, None}:
            tell_quarantined(goal.host, model.title, model.sha256)
    # What was here may come from Prefect's cache, which tells of another day.
    row = row.model_copy(update=told) if is_absent else row
    if row.fetched:
        tell_hydrated(goal.host, row)
    return row, None


async def _hydrate_once_there_is_a_slot(
    model: LockedModel, goal: Destination, suppliers: Suppliers, *, is_absent: bool, on_bytes: OnBytes
) -> Mapping[str, Any]:
    tag = mirror_tag(goal.mirror)
    limited = hydrate.with_options(
        task_run_name=f"hydrate-{model.path}",
        tags={f"hydrate:{goal.host}"} | ({tag} if tag and is_absent else set()),
        # A cached result says that the file was here once: it may have been evicted.
        refresh_cache=is_absent,
    )
    while True:
        try:
            return await limited(model, goal.host, goal.cache_dir, suppliers, on_bytes)
        except Exception as exc:
            # Its module is private to Prefect, hence by name; task retries do not cover it.
            if type(exc).__name__ != "ConcurrencySlotAcquisitionError":
                raise
            logger.warning("no slot yet for %s: %s", model.title, exc)
            await SystemClock().sleep(2.0)


def _raise_failed(host: str, rows: Iterable[ModelRow], faults: Sequence[FarmError]) -> None:
    failed = [row for row in rows if row.error]
    if not failed:
        return
    tell_failed(host, failed)
    kind = CorruptBytes if any(isinstance(exc, CorruptBytes) for exc in faults) else TransferError
    lines = [f"{row.title}: {row.error}" for row in failed]
    raise kind("\n".join([f"{counted(len(failed), 'model file')} did not come to {host}:", *lines]))


def _quarantined(blobs: BlobStore, sha256: str) -> int | None:
    """When a file of this name was put there, to notice one that is put there meanwhile."""
    path = blobs.root / "quarantine" / sha256
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return None
