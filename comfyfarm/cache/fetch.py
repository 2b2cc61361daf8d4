"""One model file from the first of its sources that gives the right bytes, into the cache.

The order of sources, and what becomes of their failures. How the bytes of one source are read is the engine's
business (`ranged`), of which nobody else knows. Nothing is visible before its SHA-256 is right.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.folder import FolderPlace
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.transfer.library import RangedRead
from comfyfarm.cache.transfer.sink import Sink, plan_parts
from comfyfarm.cache.transfer.source import Flow, SourceFailed, copy_local
from comfyfarm.errors import CorruptBytes, TransferError

_log = logging.getLogger(__name__)

CANCEL_WITHIN_S = 2.0
"""A read that is stalled at a cancel is left to end by itself; it holds nothing that anyone waits for."""

OnBytes = Callable[[int], None]


async def fetch(
    model: Pinned, places: Sequence[ObjectPlace], blobs: BlobStore, *, on_bytes: OnBytes | None = None
) -> Path:
    """Bring a file into the cache; what is there already costs one look at its size.

    Args:
        model: what must arrive.
        places: each the file itself at one source (its empty name), best first.
        blobs: the cache.
        on_bytes: told of progress in bytes, on the event loop; negative when a source is given up.

    Raises:
        TransferError: no source gave the file, each named with its failure; or the cache cannot be written.
        CorruptBytes: likewise, and a source gave bytes of the right length that are not the file's.
    """
    failures: list[SourceFailed] = []
    _drop_wrong_size(model, blobs)
    for place in places:
        if blobs.has(model.sha256, size=model.size):
            break
        try:
            return await _fetch_from(place, model, blobs, on_bytes=on_bytes)
        except SourceFailed as exc:
            _log.warning("%s from %s: %s", model.sha256, place.address, exc.reason)
            failures.append(exc)
    if blobs.has(model.sha256, size=model.size):
        return blobs.path(model.sha256)
    raise _give_up(model, failures)


def _drop_wrong_size(model: Pinned, blobs: BlobStore) -> None:
    found = blobs.size(model.sha256)
    if found is not None and found != model.size:
        blobs.quarantine(model.sha256, reason=f"{found} bytes instead of {model.size}")


def _give_up(model: Pinned, failures: Sequence[SourceFailed]) -> TransferError:
    lines = [f"  {failure.address}: {failure.reason}" for failure in failures] or ["  it has no source"]
    kind = CorruptBytes if any(failure.corrupt for failure in failures) else TransferError
    return kind("\n".join([f"no source gave {model.sha256} ({model.size} bytes):", *lines]))


async def _fetch_from(
    place: ObjectPlace, model: Pinned, blobs: BlobStore, *, on_bytes: OnBytes | None
) -> Path:
    gauge = _Gauge(asyncio.get_running_loop(), on_bytes)
    flow = Flow(gauge.add)
    done = asyncio.wrap_future(_in_thread(lambda: _pull(place, model, blobs, flow=flow)))
    try:
        return await asyncio.shield(done)
    except SourceFailed:
        gauge.take_back()
        raise
    except asyncio.CancelledError:
        flow.stop()
        await asyncio.wait([done], timeout=CANCEL_WITHIN_S)
        if not done.cancel():
            done.exception()
        raise


class _Gauge:
    """Counts bytes in the threads of a transfer, and reports them on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_bytes: OnBytes | None) -> None:
        self._loop = loop
        self._on_bytes = on_bytes
        self._reported = 0

    def add(self, count: int) -> None:
        """Report more bytes, from any thread."""
        if self._on_bytes is not None:
            # The loop is gone when a stalled read outlives its cancel.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._report, count)

    def take_back(self) -> None:
        """The bytes so far are worthless. On the loop only."""
        self._report(-self._reported)

    def _report(self, count: int) -> None:
        self._reported += count
        if self._on_bytes is not None and count:
            self._on_bytes(count)


def _in_thread(work: Callable[[], Path]) -> concurrent.futures.Future[Path]:
    # Not an executor: the interpreter joins an executor's threads at exit, and would wait for a stalled read.
    future: concurrent.futures.Future[Path] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - handed whole to whoever waits
            future.set_exception(exc)

    threading.Thread(target=run, name="fetch", daemon=True).start()
    return future


def _pull(place: ObjectPlace, model: Pinned, blobs: BlobStore, *, flow: Flow) -> Path:
    try:
        temporary = blobs.temporary(model.sha256)
        try:
            sink = Sink(temporary.fd, plan_parts(model.size))
            try:
                sink.start()
                _fill(place, model, sink, flow=flow)
                found = sink.digest()
            finally:
                sink.stop()
            if found != model.sha256:
                raise SourceFailed(place.address, f"other bytes: their SHA-256 is {found}", corrupt=True)
            return blobs.adopt(temporary, model.sha256)
        finally:
            temporary.discard()
    except OSError as exc:
        raise TransferError(f"{blobs.root}: the cache cannot be written: {exc.strerror or exc}") from exc


def _fill(place: ObjectPlace, model: Pinned, sink: Sink, *, flow: Flow) -> None:
    if isinstance(place, FolderPlace):
        copy_local(place.path(""), model, sink, flow=flow)
    elif isinstance(place, RemotePlace):
        RangedRead(place, model, sink, flow=flow).run()
    else:
        raise SourceFailed(place.address, "a place of a kind that is not known")
