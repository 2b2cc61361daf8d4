"""A file behind an address, brought to this machine for as long as it takes to put it into a mirror.

What is known of its hash decides whether a broken transfer goes on where it was: without one, bytes of two
versions of a file could be joined unseen, so it starts over.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from comfyfarm.addresses import mask
from comfyfarm.cache.mirrors.probe import Probe
from comfyfarm.cache.mirrors.sniff import refuse_what_is_no_model
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.temporary import sweep
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.library import pull_by_library
from comfyfarm.cache.transfer.proxies import speaks_straight
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed, Stopped
from comfyfarm.errors import CorruptBytes, TransferError, UsageError

OnBytes = Callable[[int], None]
_PREFIX = "mirror-"
_PRIVATE = 0o600


def landing_name(address: str, sha256: str | None) -> str:
    """Of the folder where it lands: the same address finds, and replaces, what a killed command left."""
    return sha256 or hashlib.sha256(address.encode()).hexdigest()


def sweep_leftovers(cache: Path) -> None:
    """Remove whole files that killed commands left in the cache."""
    sweep(cache / ".partial", prefix=_PREFIX)


@asynccontextmanager
async def fetched(
    address: str, found: Probe, cache: Path, *, sha256: str | None = None, on_bytes: OnBytes
) -> AsyncIterator[Path]:
    """The file behind `address`, under `cache`, which is gone at the end.

    Args:
        address: `https://` or `s3://`.
        found: what it says of itself.
        cache: the host's cache, whose disk has room for model files.
        sha256: what it must be, where that is known.
        on_bytes: told of bytes as they come, from any thread.

    Raises:
        InputError: it is known not to be a model.
        TransferError: it did not come.
        CorruptBytes: it is not what it must be.
    """
    place = open_place(address)
    if not isinstance(place, RemotePlace):
        raise UsageError(f"{mask(address)}: no address of a web server or bucket")
    partial = cache / ".partial"
    whole = partial / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    flow = Flow(on_bytes)
    work = asyncio.create_task(
        asyncio.to_thread(_fetch, place, found.size, whole, flow=flow, sha256=sha256, address=address)
    )
    try:
        fd = await asyncio.shield(work)
    except asyncio.CancelledError:
        flow.stop()
        raise
    try:
        refuse_what_is_no_model(whole, shown=mask(address))
        yield whole
    finally:
        whole.unlink(missing_ok=True)
        os.close(fd)


def _fetch(
    place: RemotePlace, size: int, whole: Path, *, flow: Flow, sha256: str | None, address: str
) -> int:
    """The descriptor of the whole file, locked while it is open: nobody takes it for a leftover."""
    folder = whole.parent / landing_name(address, sha256)
    try:
        landing = open_landing(folder, size, stop=flow.check)
        is_whole = False
        try:
            if sha256 is None:
                landing.forget_all()
            source = place.addressed()
            if speaks_straight(source.request().url, os.environ):
                pull(source, size, landing, flow=flow)
            else:
                pull_by_library(place, size, landing, flow=flow)
            digest = landing.digest(flow.check)
            if sha256 is not None and digest != sha256:
                landing.forget_all()
                raise CorruptBytes(f"{mask(address)}: its SHA-256 is {digest}, and {sha256} was expected")
            landing.publish(whole, mode=_PRIVATE)
            is_whole = True
        finally:
            landing.close(keep=sha256 is not None and not is_whole)
        fd = os.open(whole, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except SourceFailed as exc:
        raise TransferError(f"{exc.address}: {exc.reason}") from exc
    except Stopped as exc:
        raise TransferError(f"{mask(address)}: stopped") from exc
    except OSError as exc:
        raise TransferError(f"{folder}: cannot be written ({exc.strerror or exc})") from exc
