"""What differs between two solved Python environments, in a few words."""

from collections.abc import Iterator, Mapping
from typing import Any

_MOST_NAMED = 20


def python_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Such as `numpy 1.26.4 → 2.1.0, torch 2.5.0 → nothing`; `differs` where it can be told no better."""
    changes = [*_fields(old, new), *_pins(old, new)]
    if len(changes) > _MOST_NAMED:
        changes[_MOST_NAMED:] = [f"and {len(changes) - _MOST_NAMED} more"]
    return ", ".join(changes) or "differs"


def _fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for key in ("version", "platform"):
        if old.get(key) != new.get(key):
            yield f"{key} {_shown(old.get(key))} → {_shown(new.get(key))}"
    for key in sorted((old.keys() | new.keys()) - {"version", "platform", "requirements"}):
        if old.get(key) != new.get(key):
            yield f"{key} differs"


def _pins(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    one, other = _by_name(old.get("requirements")), _by_name(new.get("requirements"))
    for name in sorted(one.keys() | other.keys()):
        before, after = (pins.get(name, {}) for pins in (one, other))
        if before.get("version") != after.get("version"):
            yield f"{name} {_shown(before.get('version'))} → {_shown(after.get('version'))}"
        elif before != after:
            yield f"{name} differs"


def _by_name(pins: Any) -> dict[str, Mapping[str, Any]]:
    """A lock may be written by hand: what is no pin is passed over."""
    rows = pins if isinstance(pins, list) else []
    return {str(row.get("name"))[:80]: row for row in rows if isinstance(row, dict)}


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]
