"""One source of a file: how its failure is said, and how its bytes are counted."""

import threading
from collections.abc import Callable


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

    def counting(self, count: Callable[[int], None]) -> "Flow":
        """The same transfer, with its bytes counted by another."""
        flow = Flow(count)
        flow._stop = self._stop
        return flow

    def stop(self) -> None:
        """End the transfer at its next chunk."""
        self._stop.set()

    def check(self) -> None:
        """Raise `Stopped` once the transfer is to end."""
        if self._stop.is_set():
            raise Stopped

    def wait(self, seconds: float) -> None:
        """Wait, and raise `Stopped` as soon as the transfer is to end."""
        if self._stop.wait(seconds):
            raise Stopped
