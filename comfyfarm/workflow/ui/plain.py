"""Plain values out of JSON that may hold anything: ids, slot numbers, lists."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

_LONGEST_ID = 200  # characters; longer ones are no ids but an attack on the reports
_MOST_BITS = 665  # of a number with so many digits; writing down longer ones would take long
_LARGE = 1e21  # from here on JavaScript writes numbers with an exponent, as Python does


def id_of(value: Any) -> str | None:
    """An id as text, which is how JavaScript uses it: of numbers and texts; None for anything else."""
    if isinstance(value, str):
        return value if 0 < len(value) <= _LONGEST_ID else None
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < _LARGE else repr(value)
    is_short = isinstance(value, int) and value.bit_length() <= _MOST_BITS
    return text if is_short and len(text := str(value)) <= _LONGEST_ID else None


def listed(value: Any) -> list[Any]:
    """A JSON list; empty for anything else."""
    return value if isinstance(value, list) else []


def node_items(nodes: Any) -> Iterator[Any]:
    """The entries of a list of nodes. Some programs write an object: then its keys are the ids."""
    if not isinstance(nodes, Mapping):
        yield from listed(nodes)
        return
    for key, item in nodes.items():
        yield {"id": key, **item} if isinstance(item, Mapping) else item


def number(value: Any) -> int:
    """A slot number; -1, which is none, for what cannot be one."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return value if is_one else -1
