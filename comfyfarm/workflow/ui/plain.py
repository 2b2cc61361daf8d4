"""Plain values out of JSON that may hold anything: ids, slot numbers, lists."""

from typing import Any

_LONGEST_ID = 200  # characters; longer ones are no ids but an attack on the reports


def id_of(value: Any) -> str | None:
    """An id as text: numbers and texts are ids, whole floats too; None for anything else."""
    if isinstance(value, str):
        return value if 0 < len(value) <= _LONGEST_ID else None
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # More bits than any id has, and writing it down would take long.
    return str(value) if isinstance(value, int) and value.bit_length() <= 64 else None


def listed(value: Any) -> list[Any]:
    """A JSON list; empty for anything else."""
    return value if isinstance(value, list) else []


def number(value: Any) -> int:
    """A slot number; -1, which is none, for what cannot be one."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return value if is_one else -1
