"""How many bytes of the model files have come: for the run's log, and for the command that waits for it."""

import contextlib
import json
import os
from collections.abc import Callable

from comfyfarm.clock import Clock, SystemClock

PIPE = "COMFYFARM_PROGRESS_FD"
"""Descriptor of a pipe that takes one JSON object a line, `done` and `total` in bytes.

Besides, `files`: those under way, each its name, and the same of it.
"""

_MOST_FILES, _LONGEST_NAME = 5, 60  # a line is to be whole: a pipe takes 4096 bytes at once
_TOLD_EACH_S = 0.2
_LOGGED_EACH_S = 10.0


class ByteProgress:
    """All files of a run together, told to whoever gave us a pipe."""

    def __init__(self, total_bytes: int, *, clock: Clock | None = None) -> None:
        pipe = os.environ.get(PIPE)
        self._pipe = int(pipe) if pipe else None
        self._clock = clock or SystemClock()
        self._total, self._done, self._told_at = total_bytes, 0, 0.0
        self._files: dict[str, tuple[int, int]] = {}
        if self._pipe is not None:
            os.set_blocking(self._pipe, False)

    def add(self, count: int, name: str = "", size_bytes: int = 0) -> None:
        """So many bytes more, of the file of that name; fewer, when a source is given up."""
        self._done += count
        if name:
            self._files[name] = (self._files.get(name, (0, 0))[0] + count, size_bytes)
        now = self._clock.monotonic()
        if now - self._told_at >= _TOLD_EACH_S or self._done >= self._total:
            self._told_at = now
            self._tell()

    def _tell(self) -> None:
        if self._pipe is not None:
            under_way = [
                (name[-_LONGEST_NAME:], done, size)
                for name, (done, size) in self._files.items()
                if done < size
            ]
            told = {"done": self._done, "total": self._total, "files": under_way[:_MOST_FILES]}
            line = json.dumps(told, separators=(",", ":")) + "\n"
            # Nobody reads it any more, or not fast enough: only a bar stands still then.
            with contextlib.suppress(OSError):
                os.write(self._pipe, line.encode())


class FileMeter:
    """One file: a line now and then while it comes, and one at its end."""

    def __init__(
        self, name: str, size_bytes: int, say: Callable[[str], None], *, clock: Clock | None = None
    ) -> None:
        self._name, self._size, self._say = name, size_bytes, say
        self._clock = clock or SystemClock()
        self._began_at = self._said_at = self._clock.monotonic()
        self._done = 0

    def add(self, count: int) -> None:
        """So many bytes more; fewer, when a source is given up."""
        self._done += count
        now = self._clock.monotonic()
        if now - self._said_at >= _LOGGED_EACH_S:
            self._said_at = now
            self._say(f"{self._name}: {megabytes(self._done)} of {megabytes(self._size)}, {self._rate(now)}")

    def end(self) -> None:
        """It is here, verified."""
        now = self._clock.monotonic()
        if not self._done:
            self._say(f"{self._name}: was here already, {megabytes(self._size)}")
            return
        took_s = now - self._began_at
        self._say(f"{self._name}: {megabytes(self._size)} in {took_s:.1f} s, {self._rate(now)}")

    def _rate(self, now: float) -> str:
        return f"{megabytes(self._done / max(now - self._began_at, 1e-3))}/s"


def megabytes(count: float) -> str:
    """Such as `6938.1 MB`; a megabyte is 1,000,000 bytes."""
    return f"{count / 1e6:.1f} MB"
