"""The engine: one file of a bucket or web server, read in many ranges at once by threads, through obstore.

The library resumes a broken body at its last good byte and repeats 5xx, resets and stalls. Parts are taken in
ascending order, so that the hash follows close behind; those after the first are bound to its ETag.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, NotSupportedError

from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.faults import describe
from comfyfarm.cache.places.remote import PART_TIMEOUT_S, WHOLE_TIMEOUT_S, RemotePlace
from comfyfarm.cache.transfer.sink import PART_BYTES, Part, Sink, plan_parts
from comfyfarm.cache.transfer.source import Flow, SourceFailed, check_size

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult

CONNECTIONS_PER_FILE = 16
MAX_CONNECTIONS = 32
"""Of this process, over all files."""
CHUNK_BYTES = 1 << 20
_SLOT_WAIT_S = 0.2

_slots = threading.BoundedSemaphore(MAX_CONNECTIONS)


class RangedRead:
    """One transfer of one file from one source."""

    def __init__(self, place: RemotePlace, model: Pinned, sink: Sink, *, flow: Flow) -> None:
        self._place = place
        self._model = model
        self._sink = sink
        self._flow = flow
        self._parts = iter(plan_parts(model.size))
        self._next = threading.Lock()
        self._etag: str | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Fill the sink.

        Raises:
            SourceFailed: the source did not give the file.
            Stopped: the transfer was cancelled.
            OSError: the sink cannot be written.
        """
        if self._model.size <= PART_BYTES:
            self._read_whole(PART_TIMEOUT_S)
            return
        try:
            self._read_first()
        except NotSupportedError:
            self._read_whole(WHOLE_TIMEOUT_S)
            return
        self._read_rest()
        if self._failure is not None:
            raise self._failure

    def _read_whole(self, timeout_s: int) -> None:
        with self._slot():
            result = self._get({}, timeout_s=timeout_s)
            self._take(result, Part(0, 0, self._model.size))
        for part in plan_parts(self._model.size):
            self._sink.finish(part)

    def _read_first(self) -> None:
        part = next(self._parts)
        with self._slot():
            result = self._get({"range": (part.start, part.end)})
            etag = result.meta["e_tag"]
            # A weak tag never matches: If-Match compares strongly (RFC 9110, 13.1.1).
            self._etag = etag if etag and not etag.startswith("W/") else None
            self._take(result, part)
        self._sink.finish(part)

    def _read_rest(self) -> None:
        count = min(CONNECTIONS_PER_FILE, len(plan_parts(self._model.size)) - 1)
        threads = [threading.Thread(target=self._work, name="part", daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        try:
            while (part := self._take_part()) is not None:
                with self._slot():
                    self._read_part(part)
        except BaseException as exc:  # noqa: BLE001 - handed whole to `run`, which raises it
            if self._failure is None:
                self._failure = exc
            self._flow.stop()

    def _take_part(self) -> Part | None:
        with self._next:
            return next(self._parts, None)

    def _read_part(self, part: Part) -> None:
        options: GetOptions = {"range": (part.start, part.end)}
        if self._etag:
            options["if_match"] = self._etag
        try:
            result = self._get(options)
        except NotSupportedError:
            raise SourceFailed(self._place.address, "answers some ranges with the whole file") from None
        self._take(result, part)
        self._sink.finish(part)

    def _get(self, options: "GetOptions", *, timeout_s: int = PART_TIMEOUT_S) -> "GetResult":
        self._flow.check()
        with self._said():
            store = self._place.reader(timeout_s=timeout_s)
            result = obstore.get(store, self._place.key(""), options=options)
        kind = result.attributes.get("Content-Type", "")
        check_size(self._place.address, result.meta["size"], self._model, kind=kind)
        return result

    def _take(self, result: "GetResult", part: Part) -> None:
        at = part.start
        for chunk in self._chunks(result):
            self._flow.check()
            if at + len(chunk) > part.end:
                raise SourceFailed(self._place.address, "sends more than was asked for")
            written = self._sink.write(at, chunk)
            self._flow.count(written)
            at += written
        if at != part.end:
            raise SourceFailed(self._place.address, f"ended after {at - part.start} bytes of a part")

    def _chunks(self, result: "GetResult") -> Iterator[bytes]:
        with self._said():
            yield from result.stream(CHUNK_BYTES)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except NotSupportedError:
            raise
        except (BaseError, OSError, ValueError) as exc:
            # `from None`: the library's text holds signed addresses, and a traceback would print it.
            raise SourceFailed(self._place.address, describe(exc)) from None

    @contextmanager
    def _slot(self) -> Iterator[None]:
        while not _slots.acquire(timeout=_SLOT_WAIT_S):
            self._flow.check()
        try:
            yield
        finally:
            _slots.release()
