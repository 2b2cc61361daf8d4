"""Which inputs a node has once its dynamic ones are opened, whether types fit, and how values convert.

Source: comfy_execution/validation.py and the V3 dynamic inputs of ComfyUI 0.27, by observation.
"""

from collections.abc import Mapping
from typing import Any

from fake_server.comfy.schema import InputSpec

_ANY = frozenset({"*", "COMFY_MATCHTYPE_V3"})
_CONVERTERS: Mapping[str, type] = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}

Category = str
Opened = dict[str, tuple[Category, InputSpec]]


def open_inputs(declared: Mapping[str, Mapping[str, InputSpec]], given: Mapping[str, Any]) -> Opened:
    """The node's inputs by name: a dynamic one stands for those that this node has of it.

    Lenient where the real one expands templates: of a growing input the ones given count.
    """
    opened: Opened = {}
    for category, specs in declared.items():
        for name, spec in specs.items():
            _open_one(name, category, spec, given, opened)
    return opened


def types_fit(received: Any, wanted: Any) -> bool:
    """Whether a link from an output of one type may go into an input of the other."""
    if received == wanted or _is_any(received) or _is_any(wanted):
        return True
    if isinstance(received, list) and wanted == "COMBO":
        return True
    if not isinstance(received, str) or not isinstance(wanted, str):
        return False
    left, right = _union(received), _union(wanted)
    return "*" in left | right or bool(left & right)


def convert(value: Any, kind: Any) -> Any:
    """The value as the node will get it.

    Raises:
        TypeError: the value cannot become the type.
        ValueError: likewise.
        OverflowError: likewise.
    """
    if isinstance(value, dict) and "__value__" in value:
        value = value["__value__"]
    converter = _CONVERTERS.get(kind) if isinstance(kind, str) else None
    return value if converter is None else converter(value)


def is_link(value: object) -> bool:
    """Whether the executor takes an input for a link to another node's output."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int | float)
    )


def _open_one(
    name: str, category: Category, spec: InputSpec, given: Mapping[str, Any], opened: Opened
) -> None:
    kind, options = spec
    if kind == "COMFY_AUTOGROW_V3":
        _open_growing(name, options, given, opened)
        return
    opened[name] = (category, spec)
    if kind == "COMFY_DYNAMICCOMBO_V3":
        _open_choice(name, options, given, opened)


def _open_growing(name: str, options: Mapping[str, Any], given: Mapping[str, Any], opened: Opened) -> None:
    template = options.get("template", {}).get("input", {})
    specs = [spec for category in template.values() for spec in category.values()]
    if not specs:
        return
    spec = (specs[0][0], specs[0][1] if len(specs[0]) > 1 else {})
    for child in given:
        if child.startswith(f"{name}."):
            opened[child] = ("optional", spec)


def _open_choice(name: str, options: Mapping[str, Any], given: Mapping[str, Any], opened: Opened) -> None:
    for option in options.get("options", []):
        if option.get("key") != given.get(name):
            continue
        for category, specs in option.get("inputs", {}).items():
            for child, spec in specs.items():
                pair = (spec[0], spec[1] if len(spec) > 1 else {})
                _open_one(f"{name}.{child}", category, pair, given, opened)


def _is_any(kind: object) -> bool:
    return isinstance(kind, str) and kind in _ANY


def _union(kind: str) -> set[str]:
    return {part.strip() for part in kind.split(",")}
