"""A worker that is dead while its HTTP answers: pending, and nothing runs."""

import pytest

from comfyfarm.run.wedge import WEDGED_S, WedgeWatch


def test_pending_without_running_for_long_is_dead() -> None:
    watch = WedgeWatch()

    assert watch.saw(running=(), pending=("a",), now=100.0) is None
    assert watch.saw(running=(), pending=("a",), now=100.0 + WEDGED_S / 2) is None
    said = watch.saw(running=(), pending=("a", "b"), now=100.0 + WEDGED_S)
    assert said is not None
    assert "the server's worker is dead" in said


@pytest.mark.parametrize(("running", "pending"), [(("b",), ("a",)), (("b",), ()), ((), ())])
def test_a_sign_of_life_begins_the_wait_anew(running: tuple[str, ...], pending: tuple[str, ...]) -> None:
    watch = WedgeWatch()
    watch.saw(running=(), pending=("a",), now=0.0)

    assert watch.saw(running=running, pending=pending, now=WEDGED_S + 1) is None
    assert watch.saw(running=(), pending=("a",), now=WEDGED_S + 2) is None
    assert watch.saw(running=(), pending=("a",), now=2 * WEDGED_S + 3) is not None
