"""What is still to be asked for, in ascending order, and who is at it. Not locked: its owner is.

Towards the end, when nothing is left to be handed out, what is left of a slow part is split with whoever is
idle; a part that lags is handed out a second time.
"""

from collections import deque
from collections.abc import Iterable

from comfyfarm.cache.transfer.landing import CHUNK_BYTES, Chunk

_WORTH_S = 0.3
"""What is left of a part is split when it would take longer than this."""


class Stretch:
    """A part of the file that one request is to bring; what breaks is asked for from `at` on."""

    def __init__(self, start: int, end: int) -> None:
        self.at = start
        """Begin of the chunk that has not landed yet."""
        self.end = end
        """Not included. Comes nearer when the part is split."""
        self.chunk: Chunk | None = None
        """Perhaps half full."""
        self.tries = 0
        """By whomever, since enough came of them."""
        self._mark = start
        """How far it was then."""
        self.rate = 0.0
        """Bytes a second of whoever is at it."""
        self.is_raced = False
        self.is_lost = False
        """Another request is ahead of this one, and brings the rest."""

    @property
    def position(self) -> int:
        """The next byte to be asked for."""
        return self.at + (self.chunk.filled if self.chunk else 0)

    def tried(self, progress_bytes: int) -> None:
        """One try has ended; the count begins anew once so much has come since it last did."""
        if self.position - self._mark >= progress_bytes:
            self.tries, self._mark = 0, self.position
        else:
            self.tries += 1


class Stretches:
    """The parts of one file."""

    def __init__(self, missing: Iterable[range], part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._waiting: deque[Stretch] = deque()
        self.running: list[Stretch] = []
        self.add(missing)

    @property
    def is_done(self) -> bool:
        """Nothing waits, and nobody is at anything."""
        return not self._waiting and not self.running

    def most_useful(self) -> int:
        """More threads than this would have nothing to do."""
        return len(self._waiting) + sum(_chunks(each) for each in self.running)

    def add(self, missing: Iterable[range]) -> None:
        """Cut at multiples of the part's size."""
        for each in missing:
            at = each.start
            while at < each.stop:
                end = min(each.stop, (at // self._part_bytes + 1) * self._part_bytes)
                self._waiting.append(Stretch(at, end))
                at = end

    def take(self, *, may_split: bool = False) -> Stretch | None:
        """The next part, else half of one that is being fetched; None while there is nothing to be shared."""
        stretch = self._waiting.popleft() if self._waiting else self._split() if may_split else None
        if stretch is not None:
            self.running.append(stretch)
        return stretch

    def give_back(self, stretch: Stretch) -> None:
        """Somebody else goes on with it, from its last whole chunk."""
        self.running.remove(stretch)
        self._waiting.appendleft(stretch)

    def end(self, stretch: Stretch) -> None:
        """It has been fetched, or somebody else has the rest of it."""
        self.running.remove(stretch)

    def race(self, stretch: Stretch) -> None:
        """Let a second request bring what is left of it, before anything else; unless it has just ended."""
        if stretch not in self.running:
            return
        stretch.is_raced = True
        rival = Stretch(stretch.at, stretch.end)
        rival.is_raced = True
        self._waiting.appendleft(rival)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def _split(self) -> Stretch | None:
        slow = [each for each in self.running if _is_worth_it(each)]
        longest = max(slow, key=lambda each: each.end - each.at, default=None)
        if longest is None:
            return None
        end, chunks = longest.end, _chunks(longest)
        longest.end = longest.at + (chunks - chunks // 2) * CHUNK_BYTES
        return Stretch(longest.end, end)


def _chunks(stretch: Stretch) -> int:
    """The one that is being filled, and those behind it; the last of a file may be short."""
    return -(-(stretch.end - stretch.at) // CHUNK_BYTES)


def _is_worth_it(stretch: Stretch) -> bool:
    left = stretch.end - stretch.at
    is_slow = 0 < stretch.rate * _WORTH_S < left
    return is_slow and not stretch.is_raced and _chunks(stretch) > 1
