"""Recognises a server whose worker is dead while its HTTP goes on answering. Pure."""

from collections.abc import Collection

WEDGED_S = 10.0
"""Between two prompts nothing runs for a few milliseconds; loading a huge graph, for a second."""


class WedgeWatch:
    """Looks at a server's queue again and again, for one prompt that waits in it."""

    def __init__(self, *, after_s: float = WEDGED_S) -> None:
        self._after_s = after_s
        self._idle_since: float | None = None

    def saw(self, *, running: Collection[object], pending: Collection[object], now: float) -> str | None:
        """Why the server is held for dead, or None. `now` in seconds of a monotonic clock."""
        if running or not pending:
            self._idle_since = None
            return None
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < self._after_s:
            return None
        return f"prompts are pending and none has run for {self._after_s:g} s: the server's worker is dead"
