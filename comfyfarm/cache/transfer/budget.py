"""One budget of connections for the process: files that began earlier take first, and none goes without."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

MAX_CONNECTIONS = 32
"""Of this process, over all files."""
_KEPT_FOR_EACH = 2
"""So many stay free for every other file: that its hashing goes on beside the first one's."""


class Share:
    """What one file has of the budget."""

    def __init__(self, budget: "Budget") -> None:
        self._budget = budget
        self.held = 0
        self.wanted = 0

    def take(self) -> bool:
        """One connection more, where there is room for it."""
        return self._budget.take(self)

    def give(self) -> None:
        """One connection fewer."""
        self._budget.give(self)

    @property
    def files(self) -> int:
        """How many take part, this one among them."""
        return self._budget.files

    def must_yield(self) -> bool:
        """Whether a file that came meanwhile is to have one of these."""
        return self._budget.is_over(self)


class Budget:
    """Connections, shared by the files of one process in the order in which they joined."""

    def __init__(self, total: int = MAX_CONNECTIONS) -> None:
        self.total = total
        self._lock = threading.Lock()
        self._shares: list[Share] = []

    @property
    def files(self) -> int:
        """How many take part."""
        return len(self._shares)

    @contextmanager
    def join(self) -> Iterator[Share]:
        """Take part, behind those that do already."""
        share = Share(self)
        with self._lock:
            self._shares.append(share)
        try:
            yield share
        finally:
            with self._lock:
                self._shares.remove(share)

    def take(self, share: Share) -> bool:
        """See `Share.take`."""
        with self._lock:
            if share.held >= self._most(share) or self._free() <= self._wanted_before(share):
                return False
            share.held += 1
            return True

    def give(self, share: Share) -> None:
        """See `Share.give`."""
        with self._lock:
            share.held -= 1

    def is_over(self, share: Share) -> bool:
        """See `Share.must_yield`."""
        with self._lock:
            is_short = any(each.held < min(_KEPT_FOR_EACH, each.wanted) for each in self._shares)
            return share.held > self._most(share) and is_short

    def _free(self) -> int:
        return self.total - sum(each.held for each in self._shares)

    def _most(self, share: Share) -> int:
        others = sum(min(_KEPT_FOR_EACH, max(each.wanted, 1)) for each in self._shares if each is not share)
        return max(1, self.total - others)

    def _wanted_before(self, share: Share) -> int:
        if share.held < _KEPT_FOR_EACH:
            return 0  # every file is to move
        before = self._shares[: self._shares.index(share)]
        return sum(max(0, min(each.wanted, self._most(each)) - each.held) for each in before)


BUDGET = Budget()
