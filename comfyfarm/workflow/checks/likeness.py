"""How like a wrong value is to the options of a combo: what to suggest, and whether it is a slip."""

import difflib
import re
from functools import lru_cache

from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.names import base_name
from comfyfarm.workflow.node import Node, Value

_MANY = 1_000  # options, beyond which only those of the same first letters are compared
_MOST_COMPARED = 100_000  # options, for the wrong values of one file; it takes about a second
_FEWEST = 20  # options, that making ready for a value takes as long as
_NO_LETTERS = re.compile(r"[\W_]+")


class Suggestions:
    """The options that the wrong values of one file are most like.

    A file may have a wrong value in each of a hundred thousand nodes: the first thousands get suggestions.
    """

    def __init__(self) -> None:
        """Those of a file of which nothing has been looked at."""
        self._left = _MOST_COMPARED
        self._known: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def of(self, node: Node, spec: InputSpec, value: Value) -> tuple[str, ...]:
        """Up to three options, the best first; none when too many values were looked at before."""
        key = (node.class_type, spec.name, str(value)[:200])
        if key not in self._known:
            options = spec.options or ()
            self._left -= max(len(options), _FEWEST)
            self._known[key] = nearest(value, options) if self._left >= 0 else ()
        return self._known[key]


def nearest(value: Value, options: tuple[Value, ...]) -> tuple[str, ...]:
    """Up to three options that are most like the value; first those of its name in other folders."""
    return _nearest(str(value)[:200], tuple(map(str, options)))


@lru_cache(maxsize=256)  # one wrong name is often in many nodes
def _nearest(value: str, options: tuple[str, ...]) -> tuple[str, ...]:
    text = value.casefold()
    base = base_name(text)
    by_fold = {option.casefold(): option for option in options}
    moved = [option for fold, option in by_fold.items() if base_name(fold) == base]
    if len(by_fold) > _MANY:
        by_fold = {fold: option for fold, option in by_fold.items() if fold[:2] == text[:2]}
    like = [by_fold[item] for item in difflib.get_close_matches(text, by_fold, n=3)]
    return tuple(dict.fromkeys([*moved, *like]))[:3]


def is_slip(value: str, options: tuple[Value, ...]) -> bool:
    """Whether it is one of the options written wrongly: another case, other separators, a typing error.

    Other digits are no slip: `wan2.7` is another thing than `wan2.6`.
    """
    if not all(isinstance(option, str) for option in options):
        return True
    return _is_like_any(value[:200], tuple(map(str, options)))


@lru_cache(maxsize=256)
def _is_like_any(value: str, options: tuple[str, ...]) -> bool:
    mine = _plain(value)
    return not mine or any(_is_like(mine, other) for other in _by_digits(options).get(_digits(mine), ()))


@lru_cache(maxsize=256)
def _by_digits(options: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in map(_plain, options):
        found.setdefault(_digits(option), []).append(option)
    return found


def _is_like(mine: str, other: str) -> bool:
    """Whether one edit in five letters, two at most, makes one of the other: `eulera`, `eulr`, `euler`."""
    length = max(len(mine), len(other))
    most = min(2, length // 5)
    if abs(len(mine) - len(other)) > most:
        return False
    blocks = difflib.SequenceMatcher(None, mine, other).get_matching_blocks()
    return length - sum(block.size for block in blocks) <= most


def _plain(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold()[:200])


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter.isdigit())
