"""The keeper of a host's cache: leases, pins, room, and what was used when, for any number of processes."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from comfyfarm.addresses import mask
from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.admission import (
    Admission,
    Bounds,
    CacheState,
    admit,
    evictable,
    why_it_stays,
)
from comfyfarm.cache.keeper.cache_lock import READ_ONLY, cache_lock, unwritable
from comfyfarm.cache.keeper.cache_state import look
from comfyfarm.cache.keeper.evict import EvictReport, evict_named, remove_hard_links
from comfyfarm.cache.keeper.index import Index
from comfyfarm.cache.keeper.known import Known, Pin, write_pins
from comfyfarm.cache.keeper.leases import Lease, living, take, take_by_blobs
from comfyfarm.cache.keeper.linking import note_names, place_links, place_view
from comfyfarm.cache.keeper.making_room import admitted, make_room
from comfyfarm.cache.keeper.notes import remove_pins, write_notes
from comfyfarm.cache.keeper.pins_copy import write_copy
from comfyfarm.cache.keeper.strange import is_strange, refuse_files_for_folders, take_away_strange
from comfyfarm.cache.layout import refuse_misplaced
from comfyfarm.cache.pinned import Pinned, Placed
from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import TransferError, TryLater

_log = logging.getLogger(__name__)

__all__ = ["Bounds", "EvictReport", "Held", "Keeper"]


class Held(NamedTuple):
    """What a lease found and did when it began."""

    missing: tuple[str, ...]
    """SHA-256 of the files that have to come; there is room for them."""
    evicted: tuple[str, ...]
    """That left for them."""


class Keeper:
    """Keeps the cache of `blobs` within its bounds, and from losing what is pinned or in use."""

    def __init__(self, blobs: BlobStore, bounds: Bounds, *, clock: Clock | None = None) -> None:
        """Nothing is opened or made yet. What changes goes through the disk of `blobs`."""
        self.blobs = blobs
        self.bounds = bounds
        self.index = Index(blobs.root, disk=blobs.disk)
        self._clock = clock or SystemClock()
        self._disk = blobs.disk

    @contextlib.contextmanager
    def hold(self, models: Sequence[Pinned], *, who: str = "") -> Iterator[Held]:
        """A lease: nothing that it names is evicted while it is open and this process lives.

        Room for what is missing is made first, and is promised to nobody else. Where the disk is full or
        read-only and everything is here, it works all the same.

        Args:
            models: the files that are needed.
            who: holds it, for people; by default this process.

        Raises:
            NoRoom: they do not fit, whatever may leave; nothing was changed.
            TransferError: some have to come, and the cache cannot be written.
        """
        wanted = {model.sha256: model.size for model in models}
        if not wanted:
            yield Held((), ())
            return
        held, lease = self._take(wanted, who)
        try:
            self._note_names(models)
            self.note(used=tuple(wanted))
            yield held
        finally:
            lease.close()
            self.note(used=tuple(wanted))

    def make_room(self, models: Sequence[Pinned]) -> Held:
        """Make room again, within a lease of the same files: what became wrong meanwhile has to come anew.

        What lies in quarantine leaves first.

        Raises:
            NoRoom: they do not fit, whatever may leave; nothing was changed.
            TransferError: some have to come, and the cache cannot be written.
        """
        wanted = {model.sha256: model.size for model in models}
        try:
            with cache_lock(self.blobs.root, disk=self._disk):
                return self._make_room(wanted)
        except OSError as exc:
            if not self._has_all(wanted):
                raise TransferError(unwritable(self.blobs.root, exc)) from exc
            return Held((), ())

    def check(self, models: Sequence[Pinned]) -> Admission:
        """What would have to leave for these files; nothing is changed.

        Raises:
            NoRoom: they do not fit.
            InputError: they cannot be linked beside each other, or a name is too long.
            TransferError: something lies where a folder of the cache goes.
        """
        refuse_misplaced(models, self.blobs)
        refuse_files_for_folders(self.blobs, [model.sha256 for model in models])
        wanted = {model.sha256: model.size for model in models}
        return admitted(admit(wanted, self.look()[0]), self.blobs.root)

    def note(
        self,
        *,
        hits: Sequence[str] = (),
        fetched: Mapping[str, int] | None = None,
        source: str = "",
        used: Sequence[str] = (),
    ) -> None:
        """Note what was used. Never fails: what cannot be noted is only logged.

        Args:
            hits: SHA-256 of files that were here.
            fetched: bytes by SHA-256 of files that had to come.
            source: the kind of place they came from, such as `mirror` or `peer`.
            used: files that are used, and count as neither.
        """
        try:
            self._note(hits, fetched or {}, mask(source), used)
        except OSError as exc:
            level = logging.DEBUG if exc.errno in READ_ONLY else logging.WARNING
            _log.log(level, "use is not noted: %s", exc)

    def _note_names(self, models: Sequence[Pinned]) -> None:
        """So that people can name files also before they are linked, or where nothing is linked."""
        try:
            note_names(models, self.blobs.root, self.index)
        except OSError as exc:
            level = logging.DEBUG if exc.errno in READ_ONLY else logging.WARNING
            _log.log(level, "names are not noted: %s", exc)

    def _note(self, hits: Sequence[str], came: Mapping[str, int], source: str, used: Sequence[str]) -> None:
        sizes = {sha: self.blobs.size(sha) for sha in dict.fromkeys((*hits, *came, *used))}
        here = {sha: size for sha, size in sizes.items() if size is not None}
        now = self._clock.now()
        if hits or came or here:
            self.index.change(
                lambda db: write_notes(db, here, now, hits=len(hits), fetched=came, source=source)
            )

    def link(self, models: Sequence[Placed], models_dir: Path, *, hard: bool = False) -> tuple[Path, ...]:
        """`link_models`, so that evicting knows of the links and cannot come between."""
        return place_links(models, models_dir, self.blobs, index=self.index, hard=hard)

    def view(self, lock_digest: str, models: Sequence[Placed]) -> Path:
        """`make_view`, likewise."""
        return place_view(lock_digest, models, self.blobs, index=self.index)

    def pin(self, names: Mapping[str, str], *, who: str, why: str = "") -> None:
        """Keep files from ever being evicted, also ones that are not here yet.

        Args:
            names: by SHA-256, `folder/path` or nothing.
            who: pins them; one pin each.
            why: for people.

        Raises:
            TryLater: the cache cannot be written.
        """
        pins = [(sha, Pin(who, why, name, self._clock.now())) for sha, name in names.items()]
        with self._named(), cache_lock(self.blobs.root, disk=self._disk):
            self.index.change(lambda db: write_pins(db, pins))
            write_copy(self.blobs.root, self.index.read().pins, disk=self._disk)

    def unpin(self, who: str | None, shas: Sequence[str] | None = None) -> tuple[str, ...]:
        """Take the pins of somebody away, of these files or of all; returns of which there was one.

        Args:
            who: the pins' owner; None is everybody.
            shas: None is every file.

        Raises:
            TryLater: the cache cannot be written.
        """
        gone: list[str] = []
        with self._named(), cache_lock(self.blobs.root, disk=self._disk):
            self.index.change(lambda db: gone.extend(remove_pins(db, who, shas)))
            write_copy(self.blobs.root, self.index.read().pins, disk=self._disk)
        return tuple(dict.fromkeys(gone))

    def evict(self, shas: Sequence[str]) -> EvictReport:
        """Evict these, except what is pinned or in use.

        Raises:
            TryLater: the cache cannot be written; what went before is gone.
        """
        with self._named(), cache_lock(self.blobs.root, disk=self._disk):
            return self._evict(shas, *self.look(is_locked_by_us=True))

    def evict_to(self, size_bytes: int) -> EvictReport:
        """Evict the longest unused until all blobs together are no larger than this, as far as may be.

        Raises:
            TryLater: the cache cannot be written; what went before is gone.
        """
        with self._named(), cache_lock(self.blobs.root, disk=self._disk):
            state, known = self.look(is_locked_by_us=True)
            over = sum(blob.size for blob in state.blobs.values()) - size_bytes
            leaving = []
            for sha in evictable(state, keep={}):
                if over > 0:
                    leaving.append(sha)
                    over -= state.blobs[sha].size
            kept = self._evict(leaving, state, known)
        if over <= 0:
            return kept
        others = (sha for sha in state.blobs if sha not in kept.evicted)
        stayed = {sha: why for sha in others if (why := why_it_stays(sha, state))}
        return kept._replace(stayed={**stayed, **kept.stayed})

    def quarantine(self, sha256: str, *, reason: str) -> Path | None:
        """Take a wrong blob out of sight, its hard links too; returns where it lies now, if anywhere.

        Symbolic links stay: they point to where the right bytes will come.

        Raises:
            TryLater: the cache cannot be written.
        """
        with self._named(), cache_lock(self.blobs.root, disk=self._disk):
            if is_strange(self.blobs.path(sha256)):
                return take_away_strange(self.blobs, [sha256], disk=self._disk).get(sha256)
            remove_hard_links(sha256, self.blobs.path(sha256), self.index.read(), disk=self._disk)
            return self.blobs.quarantine(sha256, reason=reason)

    def look(self, *, is_locked_by_us: bool = False) -> tuple[CacheState, Known]:
        """What lies here, who needs it, and what the index knows.

        With the cache locked by us, the leases of the dead are removed.
        """
        known = self.index.read()
        leases = living(self.blobs.root, sweep_with=self._disk if is_locked_by_us else None)
        return look(self.blobs, known, leases, self.bounds, with_locks=is_locked_by_us), known

    def _take(self, wanted: Mapping[str, int], who: str) -> tuple[Held, Lease]:
        root = self.blobs.root
        refuse_files_for_folders(self.blobs, tuple(wanted))
        try:
            with cache_lock(root, disk=self._disk):
                take_away_strange(self.blobs, tuple(wanted), disk=self._disk)
                held = self._make_room(wanted)
                return held, take(root, wanted, who=who, since=self._clock.now(), disk=self._disk)
        except OSError as exc:
            if not self._has_all(wanted):
                raise TransferError(unwritable(self.blobs.root, exc)) from exc
            _log.info("%s; the files themselves are locked instead", unwritable(self.blobs.root, exc))
        try:
            return Held((), ()), take_by_blobs(self.blobs, tuple(wanted))
        except OSError as exc:
            raise TransferError(unwritable(self.blobs.root, exc)) from exc

    def _make_room(self, wanted: Mapping[str, int]) -> Held:
        return Held(
            *make_room(
                wanted,
                lambda: self.look(is_locked_by_us=True),
                self.blobs,
                index=self.index,
                disk=self._disk,
            )
        )

    def _has_all(self, wanted: Mapping[str, int]) -> bool:
        return all(self.blobs.has(sha, size=size) for sha, size in wanted.items())

    def _evict(self, shas: Sequence[str], state: CacheState, known: Known) -> EvictReport:
        return evict_named(shas, self.blobs, state, known, index=self.index, disk=self._disk)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise TryLater(unwritable(self.blobs.root, exc)) from exc
