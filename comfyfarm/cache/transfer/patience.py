"""How long a source is waited for that gives nothing, next to nothing, or asks for time: pure arithmetic.

Time that goes by for our own reasons (the disk, the hash, other files' connections) is not held against it.
"""

import math

from comfyfarm.cache.transfer.limits import Limits

_MOST_STEP_S = 1.0
"""Two looks are never farther apart, unless this machine slept."""


class Patience:
    """Looks again and again at what has come in all. Not locked: its owner is."""

    def __init__(self, limits: Limits, *, now: float) -> None:
        self._limits = limits
        self._looked_s = now
        self._watched_s = 0.0
        self._window: tuple[float, int] | None = None
        """Seconds watched and bytes received at its begin; none before the first byte."""
        self._wait_until = -math.inf
        self._waits_s = 0.0
        """Asked for by the server, since it last brought anything."""
        self._waits_from_bytes = 0

    def look(self, now: float, received: int, *, is_ours: bool, files: int) -> str:
        """Why the source is to be given up; empty while it is not.

        Args:
            now: in seconds, on a monotonic clock.
            received: bytes so far, over all connections.
            is_ours: whether it is we who are waited for, just now.
            files: as many share the link.
        """
        step_s, self._looked_s = min(now - self._looked_s, _MOST_STEP_S), now
        if is_ours or now < self._wait_until:
            return ""
        self._watched_s += step_s
        if not received:
            is_over = self._watched_s >= self._limits.first_byte_s
            return f"gave nothing in {self._watched_s:.0f} s" if is_over else ""
        return self._judge_rate(received, files)

    def may_wait(self, now: float, seconds: float, *, received: int) -> bool:
        """The server asks for that: whether all that it asked for without any progress is bearable."""
        if received - self._waits_from_bytes >= self._limits.progress_bytes:
            self._waits_s, self._waits_from_bytes = 0.0, received
        # Several connections are told so at once: that is one wait.
        begin, end = max(now, self._wait_until), now + seconds
        self._waits_s += max(0.0, end - begin)
        self._wait_until = max(self._wait_until, end)
        return self._waits_s <= self._limits.patience_s

    def _judge_rate(self, received: int, files: int) -> str:
        since_s, before = self._window = self._window or (self._watched_s, received)
        took_s, came = self._watched_s - since_s, received - before
        if took_s < self._limits.least_rate_window_s:
            return ""
        self._window = self._watched_s, received
        is_enough = came * files >= self._limits.least_rate * took_s
        return "" if is_enough else f"brings next to nothing ({came} bytes in {took_s:.0f} s)"
