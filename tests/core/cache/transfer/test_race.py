"""Which parts are raced."""

from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.race import Runner, stragglers

_LIMITS = Limits(silent_s=3, slow_window_s=4, slow_share=0.25)
_FINE = Runner(silent_s=0.1, rate=100.0, watched_s=4)


def test_who_brings_nothing_while_others_do_is_raced() -> None:
    assert stragglers([_FINE, Runner(3.0, 50.0, 4), _FINE], _LIMITS) == (1,)


def test_nobody_is_raced_while_all_are_silent() -> None:
    assert stragglers([Runner(9.0, 0.0, 4), Runner(9.0, 0.0, 4)], _LIMITS) == ()
    assert stragglers([], _LIMITS) == ()


def test_who_is_below_a_quarter_of_the_median_is_raced() -> None:
    runners = [_FINE, _FINE, Runner(0.1, 24.0, 4), Runner(0.1, 26.0, 4), _FINE]

    assert stragglers(runners, _LIMITS) == (2,)


def test_two_connections_have_no_median_and_a_new_one_no_rate() -> None:
    assert stragglers([_FINE, Runner(0.1, 1.0, 4)], _LIMITS) == ()
    assert stragglers([_FINE, _FINE, _FINE, Runner(0.1, 1.0, 0.5)], _LIMITS) == ()


def test_nobody_is_raced_twice() -> None:
    assert stragglers([_FINE, Runner(9.0, 0.0, 4, is_raced=True)], _LIMITS) == ()
