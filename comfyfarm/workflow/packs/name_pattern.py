"""Patterns for names of classes, as class maps have them: only those that cannot take long are accepted.

A map comes from outside, and `^(a+)+$` against forty letters would run for years.
"""

import re
import warnings
from collections.abc import Iterable

# Python's own parser of patterns: what it makes of one is what will be run.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

LONGEST_CLASS: Final = 200
"""Characters of a class that patterns are held against."""
_MOST_PATTERN = 300
_MOST_WAYS = 1000
"""Ways in which a pattern may try to fit at one place. One `.*` has 201."""
_PLAIN = frozenset(
    {_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.CATEGORY}
)
"""What stands for one character."""
_REPEATS = frozenset({_constants.MAX_REPEAT, _constants.MIN_REPEAT})


def bounded_pattern(raw: str) -> re.Pattern[str] | None:
    """The pattern, ready for use; None for one that is none, or that could take long on some class."""
    if not raw or len(raw) > _MOST_PATTERN:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets that another Python may read otherwise
            return re.compile(raw) if _ways(_parser.parse(raw)) <= _MOST_WAYS else None
    except (re.error, OverflowError, RecursionError):
        return None


def _ways(parts: Iterable[tuple[Any, Any]]) -> int:
    """In how many ways the parts, one behind the other, may be tried at one place of a class."""
    ways = 1
    for kind, value in parts:
        ways *= _ways_of(kind, value)
        if ways > _MOST_WAYS:
            break
    return ways


def _ways_of(kind: Any, value: Any) -> int:
    if kind in _PLAIN or kind is _constants.AT:
        return 1
    if kind is _constants.BRANCH:
        return sum(_ways(branch) for branch in value[1])
    if kind is _constants.SUBPATTERN:
        return _ways(value[3])
    if kind in _REPEATS:
        least, most, inner = value
        is_plain = len(inner) == 1 and inner[0][0] in _PLAIN
        if is_plain:
            return max(min(int(most), LONGEST_CLASS) - int(least), 0) + 1
    return _MOST_WAYS + 1  # repeats of repeats or of choices, looks ahead and behind, references back
