"""The smallest failing set, against rules that are known."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.conflict import OutOfTries, Tries, smallest_failing


@given(st.sets(st.integers(0, 99), min_size=1, max_size=5))
def test_exactly_the_guilty_are_found_in_few_tries(guilty: set[int]) -> None:
    asked = 0

    def fails(items: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return guilty <= set(items)

    assert set(smallest_failing(range(100), fails)) == guilty
    assert asked <= 2 * len(guilty) * 8 + 2 * len(guilty)


def test_of_two_conflicts_one_is_found_whole() -> None:
    pairs = [{1, 8}, {3, 5}]
    found = smallest_failing(range(10), lambda items: any(pair <= set(items) for pair in pairs))

    assert set(found) in pairs


def test_tries_are_counted() -> None:
    tries = Tries(2)
    tries.spend()
    tries.spend()

    with pytest.raises(OutOfTries):
        tries.spend()
