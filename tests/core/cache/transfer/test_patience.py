"""What makes a source be given up, and what is not held against it."""

import pytest

from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.patience import Patience

_LIMITS = Limits(first_byte_s=35, least_rate=100, least_rate_window_s=60, patience_s=60, progress_bytes=1000)


@pytest.fixture
def patience() -> Patience:
    return Patience(_LIMITS, now=0)


def _watch(
    patience: Patience, start: int, end: int, *, rate: int, is_ours: bool = False, files: int = 1
) -> str:
    """Looks each second; `rate` bytes a second since 0."""
    for now in range(start + 1, end + 1):
        if reason := patience.look(now, now * rate, is_ours=is_ours, files=files):
            return f"{now}: {reason}"
    return ""


def test_without_a_first_byte_it_ends_soon(patience: Patience) -> None:
    assert _watch(patience, 0, 99, rate=0) == "35: gave nothing in 35 s"


def test_a_rate_below_the_least_is_named_after_its_window(patience: Patience) -> None:
    assert _watch(patience, 0, 300, rate=99) == "61: brings next to nothing (5940 bytes in 60 s)"


def test_the_least_rate_is_enough(patience: Patience) -> None:
    assert _watch(patience, 0, 300, rate=100) == ""


def test_each_of_several_files_needs_its_share_only(patience: Patience) -> None:
    assert _watch(patience, 0, 300, rate=25, files=4) == ""
    assert "next to nothing" in _watch(Patience(_LIMITS, now=0), 0, 300, rate=25, files=3)


def test_a_source_that_ceases_to_bring_anything_is_given_up(patience: Patience) -> None:
    assert _watch(patience, 0, 100, rate=1000) == ""

    found = [patience.look(now, 100_000, is_ours=False, files=1) for now in range(101, 200)]
    assert "brings next to nothing (0 bytes in 60 s)" in found


@pytest.mark.parametrize("rate", [0, 1])
def test_what_our_own_disk_takes_is_not_held_against_it(patience: Patience, rate: int) -> None:
    assert _watch(patience, 0, 1000, rate=rate, is_ours=True) == ""


def test_a_machine_that_slept_does_not_blame_it(patience: Patience) -> None:
    assert patience.look(10_000, 0, is_ours=False, files=1) == ""


def test_a_wait_that_it_asked_for_counts_by_itself(patience: Patience) -> None:
    assert patience.may_wait(0, 59, received=0)

    assert _watch(patience, 0, 59, rate=0) == ""
    assert not patience.may_wait(59, 59, received=999)


def test_one_wait_told_to_many_connections_is_one(patience: Patience) -> None:
    assert all(patience.may_wait(0.1 * n, 50, received=0) for n in range(16))


def test_progress_earns_new_patience(patience: Patience) -> None:
    assert all(patience.may_wait(100 * n, 50, received=1000 * n) for n in range(9))
