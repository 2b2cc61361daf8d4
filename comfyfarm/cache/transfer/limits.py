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
    head_s: float = 15.0
    """For the whole head of an answer, whatever comes before it and however slowly."""
    first_byte_s: float = 35.0
    """A source that has given no byte of the file by then is given up; waits it asks for do not count."""
    silent_s: float = 3.0
    """One that brings nothing for so long, while others do, is raced by a second request."""
    slow_window_s: float = 4.0
    """Rates are compared over so long."""
    slow_share: float = 0.25
    """Of the median rate: what brings less is raced."""
    tries: int = 8
    """For one part; the count begins anew after each `progress_bytes`."""
    progress_bytes: int = 64 << 10
    """Tries that brought so much together were not in vain."""
    first_tries: int = 3
    """For a source that cannot be reached, before anything came from it."""
    silent_tries: int = 2
    """For one that takes the request and then stays silent, before any byte of the file came from it."""
    first_wait_s: float = 0.1
    most_wait_s: float = 8.0
    patience_s: float = 60.0
    """A `Retry-After` beyond this is no use to us, nor several that come to more without progress."""
    least_rate: float = 16 << 10
    """Bytes a second. A source that brings less is given up; of several files, each needs its share."""
    least_rate_window_s: float = 60.0
    """The least rate is that over so long."""
    renewals: int = 2
    """Addresses made anew in a row, without any byte from the new one."""
    join_s: float = 1.0
    """Threads that are still blocked so long after a stop are left to end by themselves."""


LIMITS = Limits()
