"""Which of many requirements cannot be met together: a smallest set of them, found by trying subsets."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class OutOfTries(Exception):
    """The search has used up the tries that it was given. Caught where the search was begun."""


class Tries:
    """Asks whether a set fails, at most `most` times."""

    def __init__(self, most: int) -> None:
        self._left = most

    def spend(self) -> None:
        """Count one try.

        Raises:
            OutOfTries: there are none left.
        """
        if self._left <= 0:
            raise OutOfTries
        self._left -= 1


def smallest_failing(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subset that fails and of which every part succeeds; `items` as a whole must fail.

    Asks about `2 k log(n / k) + 2 k` times for k of n. Source: U. Junker, QuickXplain, AAAI 2004.
    """
    return _explain([], list(items), fails, is_grown=False)


def _explain(
    known: list[T], items: list[T], fails: Callable[[Sequence[T]], bool], *, is_grown: bool
) -> list[T]:
    if is_grown and fails(known):
        return []
    if len(items) == 1:
        return items
    middle = len(items) // 2
    first, second = items[:middle], items[middle:]
    right = _explain([*known, *first], second, fails, is_grown=bool(first))
    left = _explain([*known, *right], first, fails, is_grown=bool(right))
    return [*left, *right]
