"""One model file from the first of its sources that gives the right bytes, into the cache.

Decides what becomes of each source's failure. How bytes are read is the engine's business (`transfer`), of
which nobody else knows. Nothing is visible before its SHA-256 is right.
"""

import logging
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.web import open_web
from comfyfarm.cache.supply import Offer, Suppliers
from comfyfarm.cache.transfer.landing import Landing, open_landing
from comfyfarm.cache.transfer.library import pull_by_library
from comfyfarm.cache.transfer.local_copy import copy_file
from comfyfarm.cache.transfer.proxies import speaks_straight
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed
from comfyfarm.errors import CorruptBytes, TransferError

_log = logging.getLogger(__name__)

PART_BYTES = 16 << 20
"""Of which a mirror keeps hashes."""


class Brought(NamedTuple):
    """How a file came."""

    path: Path
    offer: Offer | None
    """Who gave the last byte; None when another process brought it."""
    fetched_bytes: int
    """Over all sources, those that were thrown away included."""


def fetch(model: Pinned, suppliers: Suppliers, blobs: BlobStore, *, flow: Flow) -> Brought:
    """Bring a file into the cache. Blocks; for a thread of its own.

    Another process that brings the same file is waited for; what an earlier life left is not asked for again.

    Args:
        model: what must arrive.
        suppliers: where to look.
        blobs: the cache.
        flow: counts the bytes (negative ones when they turned out to be worthless), and stops the transfer.

    Raises:
        TransferError: no source gave the file, each named with its failure; or the cache cannot be written.
        CorruptBytes: likewise, and a source gave bytes of the right length that are not the file's.
        Stopped: the transfer was cancelled. What came is kept for the next call.
    """
    offers = suppliers.offers(model, flow.check)
    try:
        _drop_wrong_size(model, blobs)
        # Peers are waited for before the file's lock is taken: a host that has it seems to be fetching.
        first = next(offers, None)
        landing = open_landing(blobs.partial(model.sha256), model.size, disk=blobs.disk, stop=flow.check)
        keep = True
        try:
            if blobs.has(model.sha256, size=model.size):
                keep = False
                return Brought(blobs.path(model.sha256), None, 0)
            bringing = _Bringing(model, suppliers, landing, flow=flow)
            try:
                offer = bringing.run(chain([first] if first else [], offers))
            except CorruptBytes:
                keep = False
                raise
            return Brought(blobs.adopt_landing(landing, model.sha256), offer, bringing.fetched_bytes)
        finally:
            landing.close(keep=keep)
    except OSError as exc:
        raise TransferError(f"{blobs.root}: the cache cannot be written: {exc.strerror or exc}") from exc


def _drop_wrong_size(model: Pinned, blobs: BlobStore) -> None:
    found = blobs.size(model.sha256)
    if found is not None and found != model.size:
        blobs.quarantine(model.sha256, reason=f"{found} bytes instead of {model.size}")


class _Bringing:
    """One file, until a source has given all of it."""

    def __init__(self, model: Pinned, suppliers: Suppliers, landing: Landing, *, flow: Flow) -> None:
        self.fetched_bytes = 0
        self._model, self._suppliers, self._landing, self._flow = model, suppliers, landing, flow
        self._failures: list[SourceFailed] = []
        self._counted = landing.resumed_bytes
        flow.count(landing.resumed_bytes)

    def run(self, offers: Iterable[Offer]) -> Offer:
        """Ask one after the other; returns who completed it."""
        last: Offer | None = None
        for last in offers:
            if self._is_brought_by(last):
                return last
        # On its way a byte may turn over. Where nobody else is left to ask, the same one is asked once more.
        if last is not None and [each.corrupt for each in self._failures] == [True]:
            if self._is_brought_by(last):
                return last
            del self._failures[0]
        raise self._give_up()

    def _is_brought_by(self, offer: Offer) -> bool:
        try:
            self._fill(offer)
            self._check(offer)
        except SourceFailed as exc:
            _log.warning("%s from %s: %s", self._model.sha256, exc.address, exc.reason)
            self._suppliers.blame(offer, exc.reason, is_wrong=exc.corrupt)
            self._failures.append(exc)
            return False
        return True

    def _fill(self, offer: Offer) -> None:
        source, landing, size = offer.source, self._landing, self._model.size
        flow = self._flow.counting(self._count)
        if isinstance(source, Path):
            copy_file(source, size, landing, flow=flow)
        elif offer.tier == "peer" or speaks_straight(source.request().url, os.environ):
            pull(source, size, landing, flow=flow, connections=self._suppliers.connections)
        else:
            # Its own client speaks to proxies; a signed address is a web address like any other.
            pull_by_library(open_web(source.request().url), size, landing, flow=flow)

    def _check(self, offer: Offer) -> None:
        """Let nothing pass but the file's own bytes; of a damaged one only bad parts are asked for again."""
        for is_last in (False, True):
            found = self._landing.digest(self._flow.check)
            if found == self._model.sha256:
                return
            bad = self._bad_parts()
            self._forget(bad)
            if is_last or not bad:
                raise SourceFailed(offer.address, f"other bytes: their SHA-256 is {found}", corrupt=True)
            _log.warning("%s: %d parts came damaged, and are asked for again", self._model.sha256, len(bad))
            self._fill(offer)

    def _bad_parts(self) -> tuple[int, ...]:
        """Numbers of the parts that are not what the mirror says; empty when it says nothing that helps."""
        known = self._suppliers.part_digests(self._model)
        found = self._landing.part_digests() if known else ()
        if len(known) != len(found):
            return ()
        return tuple(
            number for number, pair in enumerate(zip(known, found, strict=True)) if pair[0] != pair[1]
        )

    def _forget(self, parts: Iterable[int]) -> None:
        bad = tuple(parts)
        if bad:
            self._landing.forget(bad)
        else:
            self._landing.forget_all()
        lost = [min(PART_BYTES, self._model.size - number * PART_BYTES) for number in bad]
        self._count(-sum(lost) if bad else -self._counted)

    def _count(self, count: int) -> None:
        self._counted += count
        self.fetched_bytes += max(count, 0)
        self._flow.count(count)

    def _give_up(self) -> TransferError:
        lines = [f"  {failure.address}: {failure.reason}" for failure in self._failures]
        kind = CorruptBytes if any(failure.corrupt for failure in self._failures) else TransferError
        what = f"no source gave {self._model.sha256} ({self._model.size} bytes):"
        return kind("\n".join([what, *(lines or ["  it has no source"])]))
