"""A file behind an address, brought to this machine for as long as it takes to put it into a mirror.

What is known of its hash decides whether a broken transfer goes on where it was: without one, bytes of two
versions of a file could be joined unseen, so it starts over.
"""

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from comfyfarm.addresses import mask
from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.held_folder import HeldFolder, hold_folder
from comfyfarm.cache.mirrors.probe import Probe
from comfyfarm.cache.mirrors.sniff import refuse_what_is_no_model
from comfyfarm.cache.partial import DATA_NAME, clear_partial, remove_partial
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.cache.transfer.library import pull_by_library
from comfyfarm.cache.transfer.proxies import speaks_straight
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed, Stopped
from comfyfarm.errors import CorruptBytes, TransferError, UsageError

_log = logging.getLogger(__name__)

OnBytes = Callable[[int], None]
_PREFIX = "mirror-"
_PRIVATE = 0o600


def landing_name(address: str, sha256: str | None) -> str:
    """Of the folder where it lands: the same address finds, and replaces, what a killed command left."""
    return sha256 or hashlib.sha256(address.encode()).hexdigest()


def sweep_leftovers(cache: Path, *, disk: Disk = SYSTEM_DISK) -> None:
    """Remove whole files that killed commands left in the cache."""
    for folder in (cache / ".partial").glob(f"{_PREFIX}*/"):
        with contextlib.suppress(OSError):  # without locks nobody can say whose command is dead
            remove_partial(folder, before_s=math.inf, disk=disk)


@asynccontextmanager
async def fetched(
    address: str,
    found: Probe,
    cache: Path,
    *,
    sha256: str | None = None,
    disk: Disk = SYSTEM_DISK,
    on_bytes: OnBytes,
) -> AsyncIterator[Path]:
    """The file behind `address`, under `cache`, which is gone at the end.

    Args:
        address: `https://` or `s3://`.
        found: what it says of itself.
        cache: the host's cache, whose disk has room for model files.
        sha256: what it must be, where that is known.
        disk: what the cache lies on.
        on_bytes: told of bytes as they come, from any thread.

    Raises:
        InputError: it is known not to be a model.
        TransferError: it did not come.
        CorruptBytes: it is not what it must be.
    """
    place = open_place(address)
    if not isinstance(place, RemotePlace):
        raise UsageError(f"{mask(address)}: no address of a web server or bucket")
    flow = Flow(on_bytes)
    fetching = _Fetching(address, place, found.size, sha256, cache / ".partial", disk=disk, flow=flow)
    work = asyncio.create_task(asyncio.to_thread(fetching.run))
    try:
        whole = await asyncio.shield(work)
    except asyncio.CancelledError:
        flow.stop()
        raise
    try:
        file = whole.path / DATA_NAME
        refuse_what_is_no_model(file, shown=mask(address))
        yield file
    finally:
        _drop(whole, disk)


@dataclass(frozen=True)
class _Fetching:
    """One file on its way."""

    address: str
    place: RemotePlace
    size: int
    sha256: str | None
    partial: Path
    _: KW_ONLY
    disk: Disk
    flow: Flow

    def run(self) -> HeldFolder:
        """Fetch it; the folder that it is in, ours as long as it is held: nobody takes it for a leftover."""
        try:
            name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
            whole = hold_folder(self.partial / name, disk=self.disk, stop=self.flow.check)
            with contextlib.ExitStack() as on_failure:
                on_failure.callback(_drop, whole, self.disk)
                self._land(whole.path / DATA_NAME)
                on_failure.pop_all()
            return whole
        except SourceFailed as exc:
            raise TransferError(f"{exc.address}: {exc.reason}") from exc
        except Stopped as exc:
            raise TransferError(f"{mask(self.address)}: stopped") from exc
        except OSError as exc:
            raise TransferError(f"{self.partial}: cannot be written ({exc.strerror or exc})") from exc

    def _land(self, whole: Path) -> None:
        folder = self.partial / landing_name(self.address, self.sha256)
        landing = open_landing(folder, self.size, disk=self.disk, stop=self.flow.check)
        is_whole = False
        try:
            if self.sha256 is None:
                landing.forget_all()
            self._pull(landing)
            digest = landing.digest(self.flow.check)
            if self.sha256 is not None and digest != self.sha256:
                landing.forget_all()
                raise CorruptBytes(
                    f"{mask(self.address)}: its SHA-256 is {digest}, and {self.sha256} was expected"
                )
            landing.publish(whole, mode=_PRIVATE)
            is_whole = True
        finally:
            landing.close(keep=self.sha256 is not None and not is_whole)

    def _pull(self, landing: Landing) -> None:
        source = self.place.addressed()
        if speaks_straight(source.request().url, os.environ):
            pull(source, self.size, landing, flow=self.flow)
        else:
            pull_by_library(self.place, self.size, landing, flow=self.flow)


def _drop(whole: HeldFolder, disk: Disk) -> None:
    try:
        clear_partial(whole, disk=disk)
    except OSError as exc:
        # The next command takes it for a leftover.
        _log.warning("%s: not removed: %s", whole.path, exc)
