"""How patient the engine is with a source. One value, so that tests are impatient with all of it at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Times in seconds."""

    connect_s: float = 10.0
    tick_s: float = 0.5
    """A read that brings nothing looks up so often: is the transfer to end, is this a stall."""
    stall_s: float = 15.0
    """A connection that brings nothing for so long is given up, and asked for the rest again."""
    silent_s: float = 3.0
    """One that brings nothing for so long, while others do, is raced by a second request."""
    slow_window_s: float = 4.0
    """Rates are compared over so long."""
    slow_share: float = 0.25
    """Of the median rate: what brings less is raced."""
    tries: int = 8
    """For one part; the count begins anew when bytes come."""
    first_tries: int = 3
    """For a source where nobody answers, before anything came from it."""
    first_wait_s: float = 0.1
    most_wait_s: float = 8.0
    patience_s: float = 60.0
    """A `Retry-After` beyond this is no use to us: the next source is asked."""
    renewals: int = 2
    """Addresses made anew in a row, without any byte from the new one."""
    join_s: float = 1.0
    """Threads that are still blocked so long after a stop are left to end by themselves."""


LIMITS = Limits()
