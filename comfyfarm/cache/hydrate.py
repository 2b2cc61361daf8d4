"""Bring what a plan needs into the host's cache: in the order of need, several at once, each verified."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.fetch import Brought, fetch
from comfyfarm.cache.gauge import Gauge, in_thread
from comfyfarm.cache.hash_speed import slow_hash_warning
from comfyfarm.cache.keeper.holding import held
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.verify import verify
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.supply import Suppliers, Supply
from comfyfarm.cache.transfer.source import Flow
from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import CorruptBytes, TransferError

_log = logging.getLogger(__name__)

FILES_AT_ONCE = 4
CANCEL_WITHIN_S = 2.0
"""A read that is stalled at a cancel is left to end by itself; it holds nothing that anyone waits for."""

P = TypeVar("P", bound=Pinned)
T = TypeVar("T")
OnBytes = Callable[[P, int], None]
OnFile = Callable[[P, Brought], None]


@dataclass(frozen=True)
class HydrateReport:
    """What hydrating did."""

    fetched: tuple[str, ...]
    """SHA-256 of the files that came, in the order of the request."""
    fetched_bytes: int
    reused: tuple[str, ...]
    """SHA-256 of the files that were here, or that another process brought meanwhile."""
    reused_bytes: int
    seconds: float


def missing(models: Iterable[P], blobs: BlobStore) -> tuple[P, ...]:
    """The files that are not in the cache yet, each content once."""
    wanted = {model.sha256: model for model in models}.values()
    return tuple(model for model in wanted if not blobs.has(model.sha256, size=model.size))


async def hydrate(
    models: Sequence[P],
    *,
    supply: Supply | Suppliers,
    keeper: Keeper,
    rereads: bool = False,
    on_bytes: OnBytes[P] | None = None,
    on_file: OnFile[P] | None = None,
    clock: Clock | None = None,
) -> HydrateReport:
    """Bring every file into the cache. All are tried; those that fail are named together.

    Args:
        models: the files in the order in which they are needed; one content is fetched once, however often
            it is named.
        supply: where to look; opened already where several calls belong together.
        keeper: of the cache; makes room first, and holds what is wanted while it comes.
        rereads: also read the files that are here, and fetch those anew that are no longer what they were.
        on_bytes: told of bytes as they come, on the event loop; negative when they were worthless.
            Bytes that are here already are not told of.
        on_file: told of each file that is here, whole, on the event loop; those that were here come first.
        clock: for the report's seconds.

    Raises:
        NoRoom: they do not fit, whatever is evicted.
        TransferError: files for which no source gave the bytes, or a cache that cannot be written.
        CorruptBytes: likewise, and a source gave wrong bytes.
        UsageError: the mirror's address is of a kind that is not known.
    """
    clock = clock or SystemClock()
    started = clock.monotonic()
    wanted = tuple({model.sha256: model for model in models}.values())
    run = _Run(supply, keeper, on_bytes=on_bytes, on_file=on_file)
    async with held(keeper, wanted):
        if rereads:
            await _quarantine_spoiled(wanted, keeper)
            # What went to the quarantine takes room that was promised to nobody.
            await asyncio.to_thread(keeper.make_room, wanted)
        absent = missing(wanted, keeper.blobs)
        here = tuple(model for model in wanted if model not in absent)
        await run.reuse(here)
        came = await run.fetch_all(absent)
    fetched = tuple(model for model in absent if came[model.sha256].offer is not None)
    reused = tuple(model for model in wanted if model not in fetched)
    return HydrateReport(
        fetched=tuple(model.sha256 for model in fetched),
        fetched_bytes=sum(model.size for model in fetched),
        reused=tuple(model.sha256 for model in reused),
        reused_bytes=sum(model.size for model in reused),
        seconds=clock.monotonic() - started,
    )


async def hydrate_one(
    model: Pinned,
    *,
    supply: Supply | Suppliers,
    keeper: Keeper,
    on_bytes: Callable[[int], None] | None = None,
) -> Brought:
    """Bring one file into the cache. One that is here costs one look at its size.

    Whoever needs it afterwards holds it beforehand (`Keeper.hold`): that makes the room, too.

    Raises:
        TransferError: no source gave it, each named with its failure; or the cache cannot be written.
        CorruptBytes: likewise, and a source gave wrong bytes.
    """
    told = (lambda _model, count: on_bytes(count)) if on_bytes is not None else None
    run = _Run(supply, keeper, on_bytes=told, on_file=None)
    if keeper.blobs.has(model.sha256, size=model.size):
        await run.reuse([model])
        return Brought(keeper.blobs.path(model.sha256), None, 0)
    return await run.fetch(model)


class _Run(Generic[P]):
    """Files on their way, several at once."""

    def __init__(
        self,
        supply: Supply | Suppliers,
        keeper: Keeper,
        *,
        on_bytes: OnBytes[P] | None,
        on_file: OnFile[P] | None,
    ) -> None:
        self._keeper, self._on_bytes, self._on_file = keeper, on_bytes, on_file
        self._suppliers = (
            supply if isinstance(supply, Suppliers) else Suppliers(supply, cache_root=keeper.blobs.root)
        )

    async def reuse(self, models: Sequence[P]) -> None:
        """Note that these were here."""
        if models:
            await asyncio.to_thread(self._keeper.note, hits=[model.sha256 for model in models])
        for model in models:
            self._tell(model, Brought(self._keeper.blobs.path(model.sha256), None, 0))

    async def fetch_all(self, models: Sequence[P]) -> Mapping[str, Brought]:
        """Begin them in their order; all are tried. How each came, by its SHA-256."""
        if models and (warning := slow_hash_warning()) is not None:
            _log.warning("%s", warning)
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def one(model: P) -> Brought:
            async with slots:
                return await self.fetch(model)

        ended = await asyncio.gather(*map(one, models), return_exceptions=True)
        _raise_together([each for each in ended if isinstance(each, BaseException)])
        return {
            model.sha256: each for model, each in zip(models, ended, strict=True) if isinstance(each, Brought)
        }

    async def fetch(self, model: P) -> Brought:
        """Bring one."""
        gauge = Gauge(asyncio.get_running_loop(), partial(self._on_bytes, model) if self._on_bytes else None)
        flow = Flow(gauge.add)
        try:
            brought = await _stoppable(lambda: fetch(model, self._suppliers, self._keeper, flow=flow), flow)
        except TransferError:
            gauge.settle(0)
            raise
        gauge.settle(model.size)
        await asyncio.to_thread(self._note, model, brought)
        self._tell(model, brought)
        return brought

    def _note(self, model: P, brought: Brought) -> None:
        if brought.offer is None:
            self._keeper.note(hits=[model.sha256])  # whoever brought it counts it
        else:
            self._keeper.note(fetched={model.sha256: brought.fetched_bytes}, source=brought.offer.tier)

    def _tell(self, model: P, brought: Brought) -> None:
        if self._on_file is not None:
            self._on_file(model, brought)


def _raise_together(failures: Sequence[BaseException]) -> None:
    for exc in failures:
        if not isinstance(exc, TransferError):
            raise exc
    if failures:
        kind = CorruptBytes if any(isinstance(exc, CorruptBytes) for exc in failures) else TransferError
        raise kind("\n".join(dict.fromkeys(map(str, failures))))


async def _stoppable(work: Callable[[], T], flow: Flow) -> T:
    """Run it in a thread of its own, and stop the flow when this is cancelled."""
    done = asyncio.wrap_future(in_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        flow.stop()
        await asyncio.wait([done], timeout=CANCEL_WITHIN_S)
        if not done.cancel():
            done.exception()
        raise


async def _quarantine_spoiled(models: Iterable[Pinned], keeper: Keeper) -> None:
    """Read what is here, and take away what is not what its name says."""
    flow = Flow(lambda _count: None)
    names = [model.sha256 for model in models]
    try:
        report = await _stoppable(lambda: verify(keeper, names, on_bytes=lambda _count: flow.check()), flow)
    except OSError as exc:
        raise TransferError(f"{exc.filename or keeper.blobs.root}: cannot be read: {exc.strerror}") from exc
    for each in report.spoiled:
        if each.quarantined is None and keeper.blobs.has(each.sha256):
            raise TransferError(f"{keeper.blobs.path(each.sha256)}: {each.reason}")
