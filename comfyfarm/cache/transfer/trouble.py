"""The first failure of a disk during a transfer: everyone who comes later is told the same."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path


class Trouble:
    """Set once, by whoever meets it first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: OSError | None = None
        self._wake: list[Callable[[], None]] = []

    def on_first(self, wake: Callable[[], None]) -> None:
        """Have this called at the first failure, without any lock held."""
        self._wake.append(wake)

    def report(self, exc: Exception, path: Path) -> OSError:
        """Keep a failure; the same, naming the file, to be raised."""
        named = named_error(exc, path)
        with self._lock:
            is_first = self._first is None
            if is_first:
                self._first = named
        if is_first:
            for wake in self._wake:
                wake()
        return named

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self._first is not None:
            # A copy: one exception raised in many threads would gather all their tracebacks.
            raise named_error(self._first, Path(self._first.filename))

    @property
    def is_there(self) -> bool:
        """Whether anything failed."""
        return self._first is not None


def named_error(exc: Exception, path: Path) -> OSError:
    """The same, of the same kind, that names a file: this one, unless it named one itself.

    What is no failure of the disk (no thread is to be had, no memory) ends a transfer just the same.
    """
    if not isinstance(exc, OSError):
        return OSError(errno.EIO, str(exc) or type(exc).__name__, str(path))
    return OSError(exc.errno, exc.strerror or str(exc), str(exc.filename or path))
