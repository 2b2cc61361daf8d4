"""One source of a file: how its failure is said, how its bytes are counted, and the simplest kind, a path."""

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.folder import COPY_BYTES
from comfyfarm.cache.transfer.sink import Sink, plan_parts


class SourceFailed(Exception):
    """One source did not give the file: the next one is tried."""

    def __init__(self, address: str, reason: str, *, corrupt: bool = False) -> None:
        super().__init__(address, reason)
        self.address = address
        """Masked."""
        self.reason = reason
        self.corrupt = corrupt
        """It gave as many bytes as it should, and they were not the file's."""


class Stopped(Exception):
    """The transfer was cancelled, or another part of it failed."""


class Flow:
    """The bytes of one transfer: counted as they come, stopped from outside."""

    def __init__(self, count: Callable[[int], None]) -> None:
        self.count = count
        """Takes a number of bytes, from any thread."""
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the transfer at its next chunk."""
        self._stop.set()

    def check(self) -> None:
        """Raise `Stopped` once the transfer is to end."""
        if self._stop.is_set():
            raise Stopped


def check_size(address: str, found: int, model: Pinned, *, kind: str = "") -> None:
    """Raise `SourceFailed` unless the source's file is as long as the pin says."""
    if found != model.size:
        raise SourceFailed(address, f"{found} bytes{kind and f' of {kind}'} instead of {model.size}")


def copy_local(path: Path, model: Pinned, sink: Sink, *, flow: Flow) -> None:
    """Fill the sink from a file on this machine.

    Raises:
        SourceFailed: it is not there, not readable, or not of the pinned size.
        OSError: the sink cannot be written.
    """
    chunks = _chunks(path, model)
    at = 0
    for part in plan_parts(model.size):
        while at < part.end:
            flow.check()
            written = sink.write(at, next(chunks)[: model.size - at])
            flow.count(written)
            at += written
        sink.finish(part)


def _chunks(path: Path, model: Pinned) -> Iterator[bytes]:
    address = str(path)
    try:
        with path.open("rb", buffering=0) as file:
            check_size(address, file.seek(0, 2), model)
            file.seek(0)
            while data := file.read(COPY_BYTES):
                yield data
    except OSError as exc:
        reason = "not there" if exc.errno == errno.ENOENT else str(exc.strerror)
        raise SourceFailed(address, reason) from exc
    raise SourceFailed(address, "became shorter while it was read")
