"""One thread that fetches: takes a stretch, asks for it, reads it into chunks, goes on where it broke."""

import logging
from collections.abc import Callable

from comfyfarm.cache.transfer.answer import Asked
from comfyfarm.cache.transfer.asking import Again, Asker, wait_s
from comfyfarm.cache.transfer.landing import CHUNK_BYTES, Chunk
from comfyfarm.cache.transfer.source import SourceFailed
from comfyfarm.cache.transfer.stretches import Stretch
from comfyfarm.cache.transfer.work import Work
from comfyfarm.clock import SystemClock

_log = logging.getLogger(__name__)
_CLOCK = SystemClock()
_FIRST_READ_BYTES = 64 << 10
"""The first reads of a connection are small, so that its rate is soon known."""
_MOST_EARLY_BYTES = 512 << 10


class Worker:
    """One thread with one connection."""

    def __init__(
        self,
        work: Work,
        left: Callable[["Worker", BaseException | None], None],
        *,
        is_early: bool = False,
    ) -> None:
        """`left` is told of its end; `is_early`: another asks first, and this one waits for that answer."""
        self.received = 0
        """Bytes so far, those that were for nothing among them."""
        self.receiving_s = 0.0
        """Time spent in receiving them."""
        self.waiting_since: float | None = None
        """Since when nothing has come of what it is waiting for."""
        self.is_landing = False
        """Whether it waits for our own memory or disk."""
        self.stretch: Stretch | None = None
        self._mark = (0, 0.0)
        self._work = work
        self._left = left
        self._is_early = is_early
        self._asker = Asker(work.address, work.route, limits=work.limits, check=work.check, wait=work.wait)
        self._read_bytes = _FIRST_READ_BYTES
        self._waste: bytearray | None = None
        self._ahead: Stretch | None = None
        """Asked for already, behind the present one."""

    def run(self) -> None:
        """Until there is nothing to do."""
        error: BaseException | None = None
        try:
            if self._is_early:
                self._asker.connect_ahead()
            while (stretch := self._next()) is not None:
                self.stretch = stretch
                if not self._fetch(stretch):
                    break
        except BaseException as exc:  # noqa: BLE001 - handed whole to `pull`, which raises it
            error = exc
        finally:
            self.waiting_since = None
            self._drop()
            self._give_back_ahead()
            self._asker.disconnect()
            self._left(self, error)

    @property
    def rate(self) -> float:
        """Bytes a second of the stretch that it is at; 0 while that is not known."""
        received, seconds = self._mark
        return (self.received - received) / max(self.receiving_s - seconds, 1e-6)

    @property
    def is_beaten(self) -> bool:
        """Whether it waits for bytes that another request has brought; asked while nobody can advance."""
        stretch = self.stretch
        return (
            stretch is not None
            and stretch.is_raced
            and stretch.at < stretch.end
            and self._work.landing.is_here(stretch.at)
            # Last: whoever wins waits for nothing from before its chunk is here until it has advanced.
            and self.waiting_since is not None
        )

    def abort(self) -> None:
        """From another thread: end what this one waits for."""
        self._asker.abort()

    def _fetch(self, stretch: Stretch) -> bool:
        """All of a stretch; False when this thread is one too many and gave it back."""
        self._mark = self.received, self.receiving_s
        while self._work.advance(stretch, stretch.at):
            try:
                self._try(stretch)
            except Again as again:
                self._asker.disconnect()
                self._give_back_ahead()
                self._work.check()
                stretch.tried(self._work.limits.progress_bytes)
                if not self._may_try_again(stretch, again):
                    return False
            else:
                self._judge_short(stretch)
        self._drop()
        self._work.end(stretch)
        self.stretch = None
        return True

    def _judge_short(self, stretch: Stretch) -> None:
        """An answer may bring less than was asked for, but not next to nothing again and again."""
        stretch.tried(self._work.limits.progress_bytes)
        is_over = stretch.is_lost or stretch.at >= stretch.end
        if not is_over and stretch.tries >= self._work.limits.tries:
            raise SourceFailed(self._work.address, "brings next to nothing by each answer")

    def _may_try_again(self, stretch: Stretch, again: Again) -> bool:
        """Wait; or give the stretch to the others."""
        self.waiting_since = None
        if again.retry_after_s and not self._work.may_wait(again.retry_after_s):
            raise SourceFailed(self._work.address, f"{again.reason}, and asks to wait again and again")
        if again.is_busy and self._work.complain(again.retry_after_s or 0.0):
            self._drop()  # in nobody's hands it would be one buffer less for all files
            self.stretch = None
            self._work.give_back(stretch)
            return False
        if self._work.landing.is_here(stretch.at):
            return True  # it was raced, and lost
        if stretch.tries >= self._most_tries(again):
            raise SourceFailed(self._work.address, again.reason)
        seconds = wait_s(stretch.tries, again, self._work.limits)
        _log.info("%s: %s; again in %.1f s", self._work.address, again.reason, seconds)
        self._work.wait(seconds)
        return True

    def _most_tries(self, again: Again) -> int:
        limits = self._work.limits
        if again.is_refused and not self._work.is_ready:
            return limits.first_tries
        return limits.silent_tries if again.is_silent and not self._work.has_bytes else limits.tries

    def _try(self, stretch: Stretch) -> None:
        work = self._work
        if work.landing.is_here(stretch.at):
            stretch.is_lost = True
            return
        position = stretch.position
        asked = self._asked(position, stretch.end)
        self.waiting_since = _CLOCK.monotonic()
        answer, hop = self._asker.ask(asked, guard_redirected=work.is_etag_redirected)
        work.learn(answer, hop, stretch, round_trip_s=self._asker.round_trip_s)
        if work.is_streamed:
            self._read_whole(stretch)
            self._asker.disconnect()
        else:
            self._asker.end_answer(is_whole=self._read(stretch, position, answer.end))

    def _asked(self, position: int, end: int) -> Asked:
        work = self._work
        is_all = work.is_streamed or (not work.is_ready and position == 0 and end == work.size)
        return Asked(
            0 if is_all else position,
            work.size if is_all else end,
            work.size,
            etag=work.etag,
            is_ranged=not is_all,
            is_first=not work.is_ready,
            has_ranges=work.has_ranges,
        )

    def _read(self, stretch: Stretch, position: int, end: int) -> bool:
        """Into chunks, as far as they are wanted; whether to the end of the body."""
        while position < end:
            chunk = stretch.chunk or self._chunk(stretch, position)
            if chunk is None:
                return False
            until, early = min(end, chunk.at + len(chunk.view)), end - self._early_bytes()
            if position < early < until:
                until = early
            elif position >= early and end == stretch.end:
                self._ask_ahead()
            position = self._fill(stretch, chunk, until)
        return True

    def _early_bytes(self) -> int:
        """What comes in two round trips: so long before its end is more asked for."""
        return min(_MOST_EARLY_BYTES, int(self.rate * 2 * self._asker.round_trip_s))

    def _ask_ahead(self) -> None:
        if self._ahead is None and self._work.has_ranges:
            self._ahead = ahead = self._work.take_ahead()
            if ahead is not None:
                asked = self._asked(ahead.at, ahead.end)
                self._asker.ask_ahead(asked, guard_redirected=self._work.is_etag_redirected)

    def _next(self) -> Stretch | None:
        ahead, self._ahead = self._ahead, None
        return ahead or self._work.take()

    def _give_back_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._work.give_back(ahead)

    def _read_whole(self, stretch: Stretch) -> None:
        """A body that begins at 0, over what is here already."""
        at, size = 0, self._work.size
        while at < size:
            length = min(CHUNK_BYTES, size - at)
            if self._work.landing.is_here(at):
                self._skip(length)
            else:
                self._skip(stretch.chunk.filled if stretch.chunk else 0)
                chunk = stretch.chunk or self._chunk(stretch, at)
                if chunk is not None:
                    self._fill(stretch, chunk, at + length)
            at += length
        stretch.is_lost = True

    def _fill(self, stretch: Stretch, chunk: Chunk, end: int) -> int:
        """A chunk, up to here; it lands once it is whole."""
        position = chunk.at + chunk.filled
        while position < end:
            count = self._receive(chunk.view[chunk.filled : end - chunk.at])
            chunk.filled += count
            position += count
        if chunk.filled == len(chunk.view):
            self._land(stretch, chunk)
        return position

    def _chunk(self, stretch: Stretch, position: int) -> Chunk | None:
        if not self._work.advance(stretch, position):
            return None
        if self._work.landing.is_here(position):
            stretch.is_lost = True
            return None
        self.waiting_since = None
        self.is_landing = True
        try:
            stretch.chunk = self._work.landing.buffer(position, self._work.check)
        finally:
            self.is_landing = False
        return stretch.chunk

    def _receive(self, view: memoryview) -> int:
        began = self.waiting_since = _CLOCK.monotonic()
        try:
            count = self._asker.receive(view[: self._read_bytes])
        finally:
            now = self.waiting_since = _CLOCK.monotonic()
            self.receiving_s += now - began
        if not count:
            raise Again("the connection ended before the file")
        self.received += count
        self._work.has_bytes = True
        if self._read_bytes < CHUNK_BYTES:
            self._read_bytes *= 2
        return count

    def _land(self, stretch: Stretch, chunk: Chunk) -> None:
        self.waiting_since = None
        length = len(chunk.view)
        self._work.check()
        stretch.chunk = None
        self.is_landing = True
        try:
            is_new = self._work.landing.put(chunk)
        finally:
            self.is_landing = False
        if is_new:
            self._work.count(length)
            self._work.advance(stretch, chunk.at + length)
        else:
            stretch.is_lost = True

    def _skip(self, count: int) -> None:
        """Read over what is here already, from a source that gives no ranges."""
        while count:
            self._waste = self._waste or bytearray(CHUNK_BYTES)
            count -= self._receive(memoryview(self._waste)[:count])

    def _drop(self) -> None:
        stretch = self.stretch
        if stretch is not None and stretch.chunk is not None:
            chunk, stretch.chunk = stretch.chunk, None
            self._work.landing.drop(chunk)
