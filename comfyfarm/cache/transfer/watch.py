"""Watches the threads of one transfer for parts that lag behind, by what each has received."""

from collections.abc import Iterable

from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.race import Runner, stragglers
from comfyfarm.cache.transfer.stretches import Stretch
from comfyfarm.cache.transfer.worker import Worker


class _Pulse:
    """What one thread had received at the begin of the window."""

    def __init__(self, now: float, received: int) -> None:
        self.began = now
        self.received = received
        self.rate: float | None = None


class Watch:
    """Looks again and again; remembers what it saw."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pulses: dict[Worker, _Pulse] = {}

    def look(self, workers: Iterable[Worker], now: float) -> list[Stretch]:
        """Those that are to be raced. Tells each stretch the rate of its thread on the way."""
        all_workers = list(workers)
        self._pulses = {each: self._pulse(each, now) for each in all_workers}
        # Bound once: each thread goes on meanwhile.
        busy = [(each, each.stretch) for each in all_workers if each.waiting_since is not None]
        runners = [(self._runner(each, stretch, now), stretch) for each, stretch in busy if stretch]
        late = stragglers([runner for runner, _ in runners], self._limits)
        return [runners[n][1] for n in late]

    def _pulse(self, worker: Worker, now: float) -> _Pulse:
        pulse = self._pulses.get(worker) or _Pulse(now, worker.received)
        took_s = now - pulse.began
        if took_s >= self._limits.slow_window_s:
            rate = (worker.received - pulse.received) / took_s
            pulse = _Pulse(now, worker.received)
            pulse.rate = rate
        if (stretch := worker.stretch) is not None:
            stretch.rate = worker.rate
        return pulse

    def _runner(self, worker: Worker, stretch: Stretch, now: float) -> Runner:
        pulse = self._pulses[worker]
        return Runner(
            silent_s=now - (worker.waiting_since or now),
            rate=pulse.rate or 0.0,
            watched_s=0.0 if pulse.rate is None else self._limits.slow_window_s,
            is_raced=stretch.is_raced,
        )
