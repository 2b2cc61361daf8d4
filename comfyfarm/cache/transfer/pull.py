"""The engine: one file from one source over HTTP, in ranges over several connections, into its landing.

The first request is for the first missing part; from its answer come size, ETag and final address, and then
the other connections start. The calling thread only watches: how many connections there are to be, which
parts lag behind, whether the transfer is to end.
"""

import errno
import logging
import math
import threading

from comfyfarm.cache.places.request import Addressed
from comfyfarm.cache.transfer.answer import Answer, Meaning
from comfyfarm.cache.transfer.asking import Changed
from comfyfarm.cache.transfer.budget import BUDGET, Budget, Share
from comfyfarm.cache.transfer.landing import Landing
from comfyfarm.cache.transfer.limits import LIMITS, Limits
from comfyfarm.cache.transfer.pace import FAR_S, Pace, Sample, part_bytes
from comfyfarm.cache.transfer.patience import Patience
from comfyfarm.cache.transfer.route import Hop, Route
from comfyfarm.cache.transfer.source import Flow, SourceFailed, Stopped
from comfyfarm.cache.transfer.stretches import Stretch, Stretches
from comfyfarm.cache.transfer.watch import Watch
from comfyfarm.cache.transfer.worker import Worker
from comfyfarm.clock import SystemClock

_log = logging.getLogger(__name__)
_CLOCK = SystemClock()
_LOOK_EACH_S = 0.05


def pull(
    source: Addressed,
    size: int,
    landing: Landing,
    *,
    flow: Flow,
    connections: int | None = None,
    limits: Limits = LIMITS,
    budget: Budget = BUDGET,
) -> None:
    """Fetch what is missing of a file. Verifies all but its bytes: that is the hash's business.

    Args:
        source: whom to ask.
        size: of the file in bytes, as it is pinned.
        landing: takes the chunks; it may have some already.
        flow: told of the bytes that landed, less those dropped again; ends the transfer.
        connections: exactly so many, as far as the budget goes; None finds out what the link needs.
        limits: how patient to be.
        budget: the connections of all transfers of this process.

    Raises:
        SourceFailed: the source does not give the file, or other bytes each time.
        Stopped: `flow` was stopped.
        OSError: the landing cannot be written.
    """
    for is_last in (False, True):
        with budget.join() as share:
            transfer = _Transfer(source, size, landing, flow=flow, share=share, limits=limits)
            try:
                transfer.run(Pace(fixed=connections))
                return
            except Changed:
                reason = "changed during the transfer"
                if is_last:
                    raise SourceFailed(source.address, reason) from None
                _log.warning("%s: %s; from the start", source.address, reason)
        lost_bytes = size - sum(map(len, landing.missing()))
        landing.forget_all()
        flow.count(-lost_bytes)


class _Transfer:
    """What the threads of one attempt share."""

    def __init__(
        self, source: Addressed, size: int, landing: Landing, *, flow: Flow, share: Share, limits: Limits
    ) -> None:
        self.address = source.address
        self.size = size
        self.landing = landing
        self.limits = limits
        self.route = Route(source, renewals=limits.renewals)
        self.etag: str | None = None
        self.is_etag_redirected: bool | None = None
        self.is_ready = self.has_bytes = self.has_ranges = self.is_streamed = False
        self._flow = flow
        self._share = share
        self._change = threading.Condition()
        self._counting = threading.Lock()
        self._over = threading.Event()
        self._stretches = Stretches(landing.missing(), part_bytes(size))
        self._workers: dict[Worker, threading.Thread] = {}
        self._failure: BaseException | None = None
        self._began = _CLOCK.monotonic()
        self._not_before = -math.inf
        """The server asked for no request before then."""
        self._gone_bytes = 0
        self._gone_s = 0.0
        self._pace = Pace()
        self._watch = Watch(limits)
        self._patience = Patience(limits, now=self._began)

    def run(self, pace: Pace) -> None:
        """Until every chunk is here."""
        self._pace = pace
        try:
            while not self._is_whole():
                self._flow.check()
                with self._change:
                    self._look()
                    if not self._stretches.is_done and self._failure is None:
                        self._change.wait(_LOOK_EACH_S if self.is_ready else FAR_S)
        finally:
            self._end()

    def _is_whole(self) -> bool:
        with self._change:
            if self._failure is not None:
                raise self._failure
            if not self._stretches.is_done:
                return False
            missing = self.landing.missing()
            self._stretches.add(missing)
        return not missing

    def _look(self) -> None:
        """How many connections, and which are to be raced. Locked."""
        now = _CLOCK.monotonic()
        bytes_, seconds = self._received()
        self._lose_patience(now, bytes_)
        if self.is_ready:
            wanted = self._pace.look(Sample(now, bytes_, seconds))
        else:
            wanted = self._pace.prepare(now - self._began)
        wanted = min(wanted, self._stretches.most_useful())
        if wanted != self._share.wanted:
            _log.debug("%s: %d connections", self.address, wanted)
        self._share.wanted = wanted
        while len(self._workers) < wanted and self._share.take():
            if not self._start():
                break
        for stretch in self._watch.look(self._workers, now):
            _log.info("%s: a part lags behind, and is raced", self.address)
            self._stretches.race(stretch)
            self._change.notify_all()
        for worker in self._workers:
            if worker.is_beaten:
                worker.abort()

    def _received(self) -> tuple[int, float]:
        """Bytes, and the time that it took all connections together."""
        bytes_, seconds = self._gone_bytes, self._gone_s
        for worker in self._workers:
            bytes_, seconds = bytes_ + worker.received, seconds + worker.receiving_s
        return bytes_, seconds

    def _lose_patience(self, now: float, received: int) -> None:
        is_ours = not self._workers or any(worker.is_landing for worker in self._workers)
        reason = self._patience.look(now, received, is_ours=is_ours, files=self._share.files)
        if reason and self._failure is None:
            self._failure = SourceFailed(self.address, reason)

    def _start(self) -> bool:
        worker = Worker(self, self._left, is_early=bool(self._workers) and not self.is_ready)
        # A daemon: a process that must end does not wait for a name server.
        thread = threading.Thread(target=worker.run, name="part", daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:
            self._share.give()
            if not self._workers:
                raise OSError(errno.EAGAIN, str(exc)) from exc
            return False  # those that there are go on
        self._workers[worker] = thread
        return True

    def _end(self) -> None:
        self._over.set()
        with self._change:
            workers = dict(self._workers)
            self._change.notify_all()
        deadline = _CLOCK.monotonic() + self.limits.join_s
        for worker in workers:
            worker.abort()
        for thread in workers.values():
            thread.join(max(0.0, deadline - _CLOCK.monotonic()))

    def check(self) -> None:
        """See `Work`."""
        if self._over.is_set():
            raise Stopped
        self._flow.check()

    def wait(self, seconds: float) -> None:
        """See `Work`."""
        self._over.wait(seconds)
        self.check()

    def take(self) -> Stretch | None:
        """See `Work`."""
        with self._change:
            while not self._over.is_set() and self._failure is None and not self._is_too_many():
                if (stretch := self._next()) is not None:
                    return stretch
                if self._stretches.is_done:
                    break
                self._change.wait(_LOOK_EACH_S)
            return None

    def take_ahead(self) -> Stretch | None:
        """See `Work`."""
        with self._change:
            is_over = self._over.is_set() or self._failure is not None or self._is_too_many()
            return None if is_over or self._is_early() else self._stretches.take()

    def _next(self) -> Stretch | None:
        # The first answer tells the others what they need.
        is_waiting = not self.is_ready and self._stretches.running
        return None if is_waiting or self._is_early() else self._stretches.take(may_split=self.has_ranges)

    def advance(self, stretch: Stretch, at: int) -> bool:
        """See `Work`."""
        with self._change:
            stretch.at = at
            return not stretch.is_lost and at < stretch.end

    def end(self, stretch: Stretch) -> None:
        """See `Work`."""
        with self._change:
            self._stretches.end(stretch)
            self._notify_at_end()

    def give_back(self, stretch: Stretch) -> None:
        """See `Work`."""
        with self._change:
            self._stretches.give_back(stretch)

    def learn(self, answer: Answer, hop: Hop, stretch: Stretch, *, round_trip_s: float) -> None:
        """See `Work`."""
        with self._change:
            self.has_ranges = self.has_ranges or answer.is_range
            if self.is_streamed or answer.meaning is Meaning.WHOLE:
                self._stream(stretch)
            if self.is_ready:
                return
            self.is_ready = True
            self.etag = answer.etag
            self.is_etag_redirected = hop.redirects > 0 if answer.etag else None
            self._pace.begin(round_trip_s, Sample(_CLOCK.monotonic(), self._gone_bytes, self._gone_s))
            self._change.notify_all()

    def _stream(self, stretch: Stretch) -> None:
        self.is_streamed = True
        self._pace = Pace(fixed=1)
        stretch.end = self.size
        self._stretches.clear()

    def complain(self, retry_after_s: float) -> bool:
        """See `Work`."""
        with self._change:
            if not self.is_ready:
                return False  # the others wait for this one
            now = _CLOCK.monotonic()
            self._not_before = max(self._not_before, now + retry_after_s)
            self._pace.complain(now)
            return self._is_too_many()

    def may_wait(self, seconds: float) -> bool:
        """See `Work`."""
        with self._change:
            return self._patience.may_wait(_CLOCK.monotonic(), seconds, received=self._received()[0])

    def count(self, taken_bytes: int) -> None:
        """See `Work`."""
        with self._counting:
            self._flow.count(taken_bytes)

    def _left(self, worker: Worker, error: BaseException | None) -> None:
        with self._change:
            self._workers.pop(worker, None)
            self._gone_bytes += worker.received
            self._gone_s += worker.receiving_s
            self._share.give()
            if error is not None and self._failure is None:
                self._failure = error
            self._change.notify_all()

    def _is_early(self) -> bool:
        return _CLOCK.monotonic() < self._not_before

    def _is_too_many(self) -> bool:
        return len(self._workers) > max(1, self._pace.wanted) or self._share.must_yield()

    def _notify_at_end(self) -> None:
        # Else the watching thread would wake for nothing, once for each part.
        if self._stretches.is_done:
            self._change.notify_all()
