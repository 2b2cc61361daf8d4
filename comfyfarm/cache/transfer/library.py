"""The other engine, through obstore: for addresses behind an HTTP proxy, of which ours knows none.

The library resumes a broken body at its last good byte and repeats 5xx, resets and stalls by itself. Parts
are taken in ascending order; those after the first are bound to its ETag.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, NotSupportedError

from comfyfarm.cache.places.faults import describe
from comfyfarm.cache.places.remote import PART_TIMEOUT_S, WHOLE_TIMEOUT_S, RemotePlace
from comfyfarm.cache.transfer.answer import strong_etag
from comfyfarm.cache.transfer.budget import BUDGET, Share
from comfyfarm.cache.transfer.landing import CHUNK_BYTES, Chunk, Landing
from comfyfarm.cache.transfer.pace import MANY, part_bytes
from comfyfarm.cache.transfer.source import Flow, SourceFailed, Stopped
from comfyfarm.cache.transfer.stretches import Stretch, Stretches

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

_JOIN_S = 1.0


def pull_by_library(place: RemotePlace, size: int, landing: Landing, *, flow: Flow) -> None:
    """Fetch what is missing of the file that a place is. As `pull`, without its care for slow connections.

    Raises:
        SourceFailed: the source does not give the file.
        Stopped: `flow` was stopped.
        OSError: the landing cannot be written.
    """
    with BUDGET.join() as share:
        _LibraryRead(place, size, landing, flow=flow, share=share).run()


class _LibraryRead:
    """One transfer of one file from one source."""

    def __init__(self, place: RemotePlace, size: int, landing: Landing, *, flow: Flow, share: Share) -> None:
        self._place = place
        self._size = size
        self._landing = landing
        self._flow = flow
        self._share = share
        self._lock = threading.Lock()
        self._stretches = Stretches(landing.missing(), part_bytes(size))
        self._etag: str | None = None
        self._failure: BaseException | None = None
        self._over = threading.Event()

    def run(self) -> None:
        first = self._stretches.take()
        if first is None:
            return
        try:
            self._read_first(first)
        except NotSupportedError:
            self._take(self._get({}, timeout_s=WHOLE_TIMEOUT_S), 0, self._size)
            return
        threads = self._start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    self._flow.check()
        finally:
            self._over.set()
            for thread in threads:
                thread.join(_JOIN_S)
        if self._failure is not None:
            raise self._failure

    def _start(self) -> list[threading.Thread]:
        self._share.wanted = min(MANY, self._stretches.most_useful())
        # This thread only waits: it is one of them, so at least one there is.
        threads: list[threading.Thread] = []
        while len(threads) < self._share.wanted and (self._share.take() or not threads):
            threads.append(threading.Thread(target=self._work, name="part", daemon=True))
        for thread in threads:
            thread.start()
        return threads

    def _work(self) -> None:
        try:
            while not self._over.is_set() and (stretch := self._next()) is not None:
                self._read(stretch)
        except BaseException as exc:  # noqa: BLE001 - handed whole to `run`, which raises it
            self._failure = self._failure or exc
            self._over.set()
        finally:
            if self._share.held:
                self._share.give()

    def _next(self) -> Stretch | None:
        with self._lock:
            return self._stretches.take()

    def _read_first(self, stretch: Stretch) -> None:
        is_all = (stretch.at, stretch.end) == (0, self._size)
        result = self._get({} if is_all else {"range": (stretch.at, stretch.end)})
        etag = result.meta["e_tag"]
        self._etag = strong_etag(etag or "")
        self._take(result, stretch.at, stretch.end)

    def _read(self, stretch: Stretch) -> None:
        options: GetOptions = {"range": (stretch.at, stretch.end)}
        if self._etag:
            options["if_match"] = self._etag
        try:
            result = self._get(options)
        except NotSupportedError:
            raise SourceFailed(self._place.address, "answers some ranges with the whole file") from None
        self._take(result, stretch.at, stretch.end)

    def _get(self, options: "GetOptions", *, timeout_s: int = PART_TIMEOUT_S) -> "GetResult":
        self._check()
        with self._said():
            store = self._place.reader(timeout_s=timeout_s)
            result = obstore.get(store, self._place.key(""), options=options)
        found, kind = result.meta["size"], result.attributes.get("Content-Type", "")
        if found != self._size:
            reason = f"{found} bytes{kind and f' of {kind}'} instead of {self._size}"
            raise SourceFailed(self._place.address, reason)
        return result

    def _take(self, result: "GetResult", start: int, end: int) -> None:
        """A body that is the file from `start` to `end`."""
        at, chunk = start, None
        try:
            for data in self._bodies(result):
                self._check()
                if at + len(data) > end:
                    raise SourceFailed(self._place.address, "sends more than was asked for")
                chunk = self._pour(memoryview(data), at, chunk)
                at += len(data)
        finally:
            if chunk is not None:
                self._landing.drop(chunk)
        if at != end:
            raise SourceFailed(self._place.address, f"ended after {at - start} bytes of a part")

    def _pour(self, data: memoryview, at: int, chunk: Chunk | None) -> Chunk | None:
        """Into chunks; the last one may stay half full."""
        while data:
            chunk = chunk or self._landing.buffer(at // CHUNK_BYTES * CHUNK_BYTES, self._check)
            count = min(len(data), len(chunk.view) - chunk.filled)
            chunk.view[chunk.filled : chunk.filled + count] = data[:count]
            chunk.filled += count
            data, at = data[count:], at + count
            length = len(chunk.view)
            if chunk.filled == length:
                if self._landing.put(chunk):
                    self._flow.count(length)
                chunk = None
        return chunk

    def _bodies(self, result: "GetResult") -> Iterator[bytes]:
        with self._said():
            yield from result.stream(CHUNK_BYTES)

    def _check(self) -> None:
        if self._over.is_set():
            raise Stopped
        self._flow.check()

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except NotSupportedError:
            raise
        except (BaseError, OSError, ValueError) as exc:
            # `from None`: the library's text holds signed addresses, and a traceback would print it.
            raise SourceFailed(self._place.address, describe(exc)) from None
