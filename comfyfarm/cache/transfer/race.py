"""Which parts are raced by a second request: those that bring nothing, or far less than the others. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from comfyfarm.cache.transfer.limits import Limits

_FEWEST = 3
"""A median of fewer says nothing."""


@dataclass(frozen=True)
class Runner:
    """One request, as the watch sees it."""

    silent_s: float
    """Since its last byte."""
    rate: float
    """Bytes a second over the window."""
    watched_s: float
    """How much of the window it has been receiving."""
    is_raced: bool = False


def stragglers(runners: Sequence[Runner], limits: Limits) -> tuple[int, ...]:
    """Places of those to be raced. While all are silent nobody is: then the source is at fault."""
    if not any(each.silent_s < limits.silent_s for each in runners):
        return ()
    rates = [each.rate for each in runners if each.watched_s >= limits.slow_window_s]
    median = statistics.median(rates) if len(rates) >= _FEWEST else 0.0
    return tuple(n for n, each in enumerate(runners) if not each.is_raced and _is_late(each, median, limits))


def _is_late(runner: Runner, median: float, limits: Limits) -> bool:
    is_slow = runner.watched_s >= limits.slow_window_s and runner.rate < median * limits.slow_share
    return runner.silent_s >= limits.silent_s or is_slow
