"""One model file from the first of its sources that gives the right bytes, into the cache.

Decides what becomes of each source's failure. How bytes are read is the engine's business (`transfer`), of
which nobody else knows. Nothing is visible before its SHA-256 is right.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.mirrors.hashes import bad_parts
from comfyfarm.cache.pinned import PART_BYTES, Pinned
from comfyfarm.cache.places.folder import hash_file
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.cache.places.web import open_request
from comfyfarm.cache.places.web_auth import auth_hint
from comfyfarm.cache.supply import Offer, Suppliers
from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.cache.transfer.local_copy import copy_file
from comfyfarm.cache.transfer.proxies import speaks_straight
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed
from comfyfarm.errors import CorruptBytes, FarmError, InputError, TransferError
from comfyfarm.workflow.shown import counted

_log = logging.getLogger(__name__)

_DENIED = "access denied"


class Brought(NamedTuple):
    """How a file came."""

    path: Path
    offer: Offer | None
    """Who gave the last byte; None when another process brought it."""
    fetched_bytes: int
    """Over all sources, those that were thrown away included."""


def fetch(model: Pinned, suppliers: Suppliers, keeper: Keeper, *, flow: Flow) -> Brought:
    """Bring a file into the cache. Blocks; for a thread of its own.

    Another process that brings the same file is waited for; what an earlier life left is not asked for again.

    Args:
        model: what must arrive.
        suppliers: where to look.
        keeper: of the cache.
        flow: counts the bytes (negative ones when they turned out to be worthless), and stops the transfer.

    Raises:
        TransferError: no source gave the file, each named with its failure; or the cache cannot be written.
        CorruptBytes: likewise, and a source gave bytes of the right length that are not the file's.
        InputError: the file is here, and has another size than the pin says.
        Stopped: the transfer was cancelled. What came is kept for the next call.
    """
    offers, blobs = suppliers.offers(model, flow.check), keeper.blobs
    try:
        _drop_wrong_size(model, keeper)
        # Peers are waited for before the file's lock is taken: a host that has it seems to be fetching.
        first = next(offers, None)
        landing = open_landing(blobs.partial(model.sha256), model.size, disk=blobs.disk, stop=flow.check)
        is_kept = True
        try:
            if blobs.has(model.sha256, size=model.size):
                is_kept = False
                return Brought(blobs.path(model.sha256), None, 0)
            bringing = _Bringing(model, suppliers, landing, flow=flow)
            offer = bringing.run(chain([first] if first else [], offers))
            return Brought(blobs.adopt_landing(landing, model.sha256), offer, bringing.fetched_bytes)
        finally:
            landing.close(keep=is_kept)
    except OSError as exc:
        raise TransferError(f"{blobs.root}: the cache cannot be written: {exc.strerror or exc}") from exc


def _drop_wrong_size(model: Pinned, keeper: Keeper) -> None:
    found = keeper.blobs.size(model.sha256)
    if found is None or found == model.size:
        return
    # The pin may be what is wrong: what is right by its name is others' too.
    if hash_file(keeper.blobs.path(model.sha256)) == model.sha256:
        raise InputError(
            f"{name_of(model)}: the lock says {model.size} bytes, and the file of this SHA-256 has {found}; "
            "make the lock again"
        )
    keeper.quarantine(model.sha256, reason=f"{found} bytes instead of {model.size}")


def name_of(model: Pinned) -> str:
    """A file for people: by its place where it has one, and by its content."""
    title = getattr(model, "title", "")
    return f"{title} ({model.sha256})" if title else model.sha256


class _Bringing:
    """One file, until a source has given all of it."""

    def __init__(self, model: Pinned, suppliers: Suppliers, landing: Landing, *, flow: Flow) -> None:
        self.fetched_bytes = 0
        self._model, self._suppliers, self._landing, self._flow = model, suppliers, landing, flow
        self._name = name_of(model)
        self._failures: list[SourceFailed] = []
        self._corrupt: list[Offer] = []
        self._counting = threading.Lock()
        self._counted = landing.resumed_bytes
        flow.count(landing.resumed_bytes)

    def run(self, offers: Iterable[Offer]) -> Offer:
        """Ask one after the other; returns who completed it."""
        for offer in offers:
            if self._is_brought_by(offer):
                return offer
        # On its way a byte may turn over. Where nobody else is left to ask, the same one is asked once more;
        # unless it was already, for the parts that are known to be bad.
        if len(self._corrupt) == 1 and not self._here_bytes():
            self._failures = [each for each in self._failures if not each.corrupt]
            if self._is_brought_by(self._corrupt[0]):
                return self._corrupt[0]
        raise self._give_up()

    def _is_brought_by(self, offer: Offer) -> bool:
        is_mixed = self._here_bytes() > 0
        try:
            self._fill(offer)
            self._check(offer, is_mixed=is_mixed)
        except SourceFailed as exc:
            exc = _with_hint(exc, offer)
            _log.warning("%s from %s: %s", self._name, exc.address, exc.reason)
            self._suppliers.blame(offer, exc.reason, is_wrong=exc.corrupt)
            self._failures.append(exc)
            if exc.corrupt:
                self._corrupt.append(offer)
            return False
        return True

    def _here_bytes(self) -> int:
        return self._model.size - sum(map(len, self._landing.missing()))

    def _fill(self, offer: Offer) -> None:
        source, landing, size = offer.source, self._landing, self._model.size
        flow = self._flow.counting(self._count)
        if isinstance(source, Path):
            copy_file(source, size, landing, flow=flow)
        elif offer.tier == "peer" or speaks_straight(_request(source).url, os.environ):
            pull(source, size, landing, flow=flow, connections=self._suppliers.connections)
        else:
            from comfyfarm.cache.transfer.library import pull_by_library

            try:
                pull_by_library(open_request(_request(source)), size, landing, flow=flow)
            except SourceFailed as exc:
                if not exc.reason.startswith(_DENIED) or not source.renew():
                    raise
                pull_by_library(open_request(_request(source)), size, landing, flow=flow)

    def _check(self, offer: Offer, *, is_mixed: bool) -> None:
        """Let nothing pass but the file's own bytes; of a damaged one only bad parts are asked for again.

        `is_mixed`: some bytes are another source's or of an earlier life, and may be those at fault.
        """
        found = self._landing.digest(self._flow.check)
        if found != self._model.sha256 and (bad := self._bad_parts()):
            _log.warning(
                "%s: %s of 16 MiB came damaged, asked for again", self._name, counted(len(bad), "part")
            )
            found = self._refill(offer, bad)
        if found != self._model.sha256 and is_mixed:
            _log.warning("%s: damaged, of several sources; asked for again whole", self._name)
            found = self._refill(offer, ())
        if found != self._model.sha256:
            self._forget(self._bad_parts())
            raise SourceFailed(offer.address, f"other bytes: their SHA-256 is {found}", corrupt=True)

    def _refill(self, offer: Offer, bad: Iterable[int]) -> str:
        self._forget(bad)
        self._fill(offer)
        return self._landing.digest(self._flow.check)

    def _bad_parts(self) -> tuple[int, ...]:
        """Numbers of the parts that are not what the mirror says; empty when it says nothing that helps."""
        known = self._suppliers.part_digests(self._model)
        return bad_parts(known, self._landing.part_digests()) if known else ()

    def _forget(self, parts: Iterable[int]) -> None:
        bad = tuple(parts)
        if bad:
            self._landing.forget(bad)
        else:
            self._landing.forget_all()
        lost = [min(PART_BYTES, self._model.size - number * PART_BYTES) for number in bad]
        self._count(-sum(lost) if bad else -self._counted)

    def _count(self, count: int) -> None:
        with self._counting:  # the library's threads count each for itself
            self._counted += count
            self.fetched_bytes += max(count, 0)
        self._flow.count(count)

    def _give_up(self) -> TransferError:
        lines = [f"  {failure.address}: {failure.reason}" for failure in self._failures]
        tried = tuple(failure.address for failure in self._failures)
        away = self._suppliers.troubles().items()
        lines += [f"  {peer}: {why}" for peer, why in away if not any(one.startswith(peer) for one in tried)]
        kind = CorruptBytes if any(failure.corrupt for failure in self._failures) else TransferError
        what = f"no source gave {self._name} ({self._model.size} bytes):"
        return kind("\n".join([what, *(lines or ["  it has no source"])]))


def _with_hint(failure: SourceFailed, offer: Offer) -> SourceFailed:
    """What the user can do about a refusal, where the host is known to want a token."""
    status = 401 if failure.reason.startswith(_DENIED) else 404 if failure.reason == "not there" else 0
    if offer.tier != "web" or isinstance(offer.source, Path) or not status:
        return failure
    with contextlib.suppress(FarmError):
        if hint := auth_hint(offer.source.request().url, status, os.environ):
            return SourceFailed(failure.address, f"{failure.reason}; {hint}", corrupt=failure.corrupt)
    return failure


def _request(source: Addressed) -> Request:
    try:
        return source.request()
    except FarmError as exc:
        # Not the cause: it may hold the address.
        raise SourceFailed(source.address, str(exc)) from None
