"""Values put to inputs by their place, as the editor does when it opens a file.

Behind a seed stands what the editor does to it after a run. Files of other ages and other tools miss
such values, or have them where none is now: when the editor's way gives values that cannot be, and
stepping over what is no input's gives none, then that is what is meant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.node import thaw

_CONTROLS = frozenset({"fixed", "increment", "decrement", "randomize", "increment-wrap"})
_BUTTONS = frozenset({"upload3dmodel", "uploadExtraResources", "clear"})
"""Values of the buttons that the editor draws in Load 3D, between its inputs."""
_ZERO: Mapping[str, Any] = {"INT": 0, "FLOAT": 0, "STRING": "", "BOOLEAN": False}
"""What the editor starts with where the class names no default."""
_COMPARED = {"__value__": {"0": "", "1": ""}}  # the two pictures of Compare Images, as the editor queues them


@dataclass(slots=True)
class Placed:
    """Values put to inputs in one way."""

    named: dict[str, Any]
    used: int = 0
    misfits: list[str] = field(default_factory=list)
    """Inputs whose values cannot be what they take."""


def place(layout: Sequence[InputSpec], values: Sequence[Any]) -> Placed:
    """The values by input; inputs that the file has none for get what the editor starts with."""
    best = _place(layout, values, is_strict=True)
    if best.misfits:
        other = _place(layout, values, is_strict=False)
        if not other.misfits and other.used == len(values):
            return other
    return best


def is_control(value: Any) -> bool:
    """Whether it is what the editor does to a seed after a run, not a value of an input."""
    return isinstance(value, str) and value in _CONTROLS


def default_of(spec: InputSpec) -> Any:
    """What the editor shows for an input that the file has no value for; None when nothing."""
    if spec.default is not None:
        return thaw(spec.default)
    if spec.type == "IMAGECOMPARE":
        return _COMPARED
    if spec.options:
        return thaw(spec.options[0])
    return _ZERO.get(spec.type)


def _place(layout: Iterable[InputSpec], values: Sequence[Any], *, is_strict: bool) -> Placed:
    """Put values to inputs by place, as the editor does; unless strict, step over what is no input's."""
    found = Placed({})
    waiting = list(layout)[::-1]
    at = 0
    while waiting:
        spec = waiting.pop()
        while at + 1 < len(values) and _is_foreign(spec, values[at], is_strict=is_strict):
            at += 1
        if at < len(values):
            value = values[at]
            if not _is_fitting(spec, value):
                found.misfits.append(spec.name)
            found.named[spec.name] = value
        else:
            value = default_of(spec)
            if value is not None:
                found.named[spec.name] = value
        at += 1
        waiting.extend(parts_of(spec, value))
        if spec.controls and at < len(values) and (is_strict or is_after_seed(values[at])):
            at += spec.controls
    found.used = min(at, len(values))
    return found


def parts_of(spec: InputSpec, value: Any) -> list[InputSpec]:
    """The widgets that this value of a dynamic combo brings with it, last first."""
    parts = spec.active_parts(value, is_given=True) if spec.is_dynamic else ()
    return [part for part in reversed(parts) if part.is_widget]


def _is_foreign(spec: InputSpec, value: Any, *, is_strict: bool) -> bool:
    if not isinstance(value, str):
        return False
    if value in _BUTTONS:
        return spec.type != "STRING" and value not in (spec.options or ())
    return not is_strict and value in _CONTROLS and not _is_fitting(spec, value)


def is_after_seed(value: Any) -> bool:
    """Whether it is what stands behind a seed; in 2023 that was true or false."""
    return is_control(value) or isinstance(value, bool) or value is None


def _is_fitting(spec: InputSpec, value: Any) -> bool:
    if value is None:
        return True
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if spec.type in ("INT", "FLOAT"):
        return is_number
    if spec.type == "BOOLEAN":
        return isinstance(value, bool)
    if spec.type == "STRING":
        return isinstance(value, str)
    if spec.type != "COMBO":
        return True
    if is_control(value):
        return value in (spec.options or ())
    return not isinstance(value, dict)
