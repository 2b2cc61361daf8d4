"""How one file gets into a mirror: from this machine, from an address, or as a lock names it."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from comfyfarm.addresses import is_address, local_path
from comfyfarm.cache.keeper.holding import held
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.mirrors.add import FileFacts, add_file, is_mirrored
from comfyfarm.cache.mirrors.entry import MirrorEntry
from comfyfarm.cache.mirrors.sniff import refuse_what_is_no_model
from comfyfarm.cache.places.place import ObjectPlace
from comfyfarm.errors import CorruptBytes, InputError
from comfyfarm.lock.lockfile import LockedModel

_WHO = "mirror add"


class _Room(NamedTuple):
    """A file on its way through the cache, by the name of the folder where it lands."""

    sha256: str
    size: int
    sources: tuple[str, ...] = ()


class Gauge:
    """Bytes done of those that are known of by now."""

    def __init__(self, show: Callable[[int, int], None]) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._done = self._total = 0

    def expect(self, count: int) -> None:
        """So many bytes are still to come."""
        with self._lock:
            self._total += count
        self._show(self._done, self._total)

    def add(self, count: int) -> None:
        """So many have; from any thread."""
        with self._lock:
            self._done += count
        self._show(self._done, self._total)


class Adding:
    """Adds to one mirror."""

    def __init__(self, place: ObjectPlace, keeper: Keeper, gauge: Gauge, *, deep: bool) -> None:
        self._place = place
        self._keeper = keeper
        self._deep = deep
        self._gauge = gauge
        self._swept = False

    async def add_path(self, path: Path, known: FileFacts, sha256: str | None) -> MirrorEntry:
        """A file of this machine."""
        refuse_what_is_no_model(path, shown=str(path))
        named = known if known.names else known._replace(names=(path.name,))
        try:
            return await self._add(path, named, sha256)
        except CorruptBytes as exc:  # what lies here stays what it is
            raise InputError(str(exc)) from exc

    async def add_address(self, address: str, known: FileFacts, sha256: str | None) -> MirrorEntry:
        """A file behind an address, by way of a temporary one."""
        # Loading an HTTP client takes a moment, and files of this machine need none.
        from comfyfarm.cache.mirrors.from_address import fetched, landing_name, sweep_leftovers
        from comfyfarm.cache.mirrors.probe import probe

        if not self._swept:
            self._swept = True
            await asyncio.to_thread(sweep_leftovers, self._keeper.blobs.root)
        found = await probe(address)
        self._gauge.expect(found.size)
        told = known._replace(names=known.names or (found.name,), source=known.source or address)
        async with (
            held(self._keeper, [_Room(landing_name(address, sha256), found.size)], who=_WHO),
            fetched(address, found, self._keeper.blobs.root, sha256=sha256, on_bytes=self._gauge.add) as path,
        ):
            return await self._add(path, told, sha256)

    async def add_locked(self, same: Sequence[LockedModel], licence: str | None) -> MirrorEntry | None:
        """A file of a lock, unless the mirror has it; by way of the host's cache."""
        model = same[0]
        sources = [one for one in model.sources if is_address(one) and local_path(one) is None]
        known = FileFacts(
            tuple(one.path for one in same), model.folder, sources[0] if sources else None, licence
        )
        if not self._deep and await is_mirrored(self._place, model.sha256, model.size, known):
            return None
        async with held(self._keeper, [model], who=_WHO):
            path = await self._hydrated(model)
            try:
                return await self._add(path, known, model.sha256)
            except CorruptBytes:
                # Spoiled since it came into the cache: once more, from the sources.
                reason = "its bytes are no longer those of its name"
                self._keeper.quarantine(model.sha256, reason=reason)
                return await self._add(await self._hydrated(model), known, model.sha256)

    async def _hydrated(self, model: LockedModel) -> Path:
        from comfyfarm.cache.hydrate import hydrate_one
        from comfyfarm.cache.supply import Supply

        return (await hydrate_one(model, supply=Supply(), keeper=self._keeper)).path

    async def _add(self, path: Path, known: FileFacts, sha256: str | None) -> MirrorEntry:
        # Each byte twice: once read for its hash, once sent.
        self._gauge.expect(2 * path.stat().st_size)
        return await add_file(
            self._place, path, known, sha256=sha256, deep=self._deep, on_bytes=self._gauge.add
        )
