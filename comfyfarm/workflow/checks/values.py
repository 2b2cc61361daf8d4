"""Literal values of inputs against their types, as ComfyUI's `validate_inputs` converts and judges them.

Source: `validate_inputs` in ComfyUI's execution.py, 0.27.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal

from comfyfarm.workflow.checks.choices import choice_findings, separator_findings
from comfyfarm.workflow.checks.likeness import Suggestions
from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.frontend_tokens import find_token
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.node import Node, Value
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_EXACT_IN_JAVASCRIPT = 2**53
_ONLY_LINKED = frozenset(
    {"MODEL", "CLIP", "VAE", "CONDITIONING", "LATENT", "IMAGE", "MASK", "CONTROL_NET", "CLIP_VISION", "NOISE"}
    | {"CLIP_VISION_OUTPUT", "STYLE_MODEL", "GUIDER", "SAMPLER", "SIGMAS", "UPSCALE_MODEL", "AUDIO", "VIDEO"}
)
"""Types of ComfyUI that no widget can make."""


def value_findings(
    node: Node,
    spec: InputSpec,
    value: Value,
    schema: NodeSchema,
    *,
    check_files: bool,
    from_editor: bool,
    like: Suggestions,
) -> Iterator[Finding]:
    """What is wrong with a literal of an input that the class has."""
    if spec.type in _NUMBERS:
        yield from _number(node, spec, value)
    elif spec.options is not None:
        yield from choice_findings(node, spec, value, schema, check_files=check_files, like=like)
    elif spec.type == "STRING":
        yield from _text(node, spec, value, from_editor=from_editor)
    elif spec.type == "BOOLEAN":
        yield from _boolean(node, spec, value)
    elif spec.type in _ONLY_LINKED:
        message = f"{spec.type} comes over a link; ComfyUI takes {shown(value)} as it is, and the node fails"
        yield warning("not_linked", message, "connect it", node=node.id, field=spec.name)


def loose_findings(node: Node, name: str, value: Value, schema: NodeSchema) -> Iterator[Finding]:
    """What can be said of a literal whose input is in no schema."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from _precision(node, name, value)
    elif value is not None and not isinstance(value, float | bool):
        yield from separator_findings(node, name, value, schema)


def _number(node: Node, spec: InputSpec, value: Value) -> Iterator[Finding]:
    number = _converted(spec.type, value)
    if number is None:
        message = f"{shown(value)} is no {spec.type}"
        yield error("wrong_type", message, "write a number", node=node.id, field=spec.name)
        return
    if _is_changed(spec, value, number):
        yield _coerced_number(node, spec, value, number)
    if spec.min is not None and number < spec.min:
        message = f"{number} is below the least, {spec.min}"
        yield error("below_min", message, "raise it", node=node.id, field=spec.name)
    elif spec.max is not None and number > spec.max:
        message = f"{number} is above the most, {spec.max}"
        yield error("above_max", message, "lower it", node=node.id, field=spec.name)
    elif spec.type == "INT" and not isinstance(value, str | float):
        yield from _precision(node, spec.name, int(number))


def _is_changed(spec: InputSpec, value: Value, number: float) -> bool:
    """Whether ComfyUI makes something else of it. `64.0` for 64 is the same."""
    if isinstance(value, str | bool) or number != value:
        return True
    return spec.type == "INT" and isinstance(value, float) and abs(value) > _EXACT_IN_JAVASCRIPT


def _coerced_number(node: Node, spec: InputSpec, value: Value, number: float) -> Finding:
    tell = info if isinstance(value, str) and math.isfinite(number) else warning
    message = f"{shown(value)} is taken as {number}"
    return tell("coerced", message, f"write the {spec.type} that is meant", node=node.id, field=spec.name)


def _precision(node: Node, name: str, number: int) -> Iterator[Finding]:
    """JavaScript prints the shortest digits that mean its nearest double: those it would save."""
    if abs(number) > _EXACT_IN_JAVASCRIPT:
        kept = int(Decimal(repr(float(number))))
        if kept != number:
            message = f"{number} is more exact than browsers are: the editor would make {kept} of it"
            remedy = "keep it below 2^53, or never open it in the editor"
            yield warning("js_precision", message, remedy, node=node.id, field=name)


def _text(node: Node, spec: InputSpec, value: Value, *, from_editor: bool) -> Iterator[Finding]:
    if isinstance(value, str):
        if "%" in value and not from_editor:  # the converter has told
            yield from _tokens(node, spec.name, value)
        return
    tell = info if isinstance(value, int | float) else warning
    message = f"{shown(value)} is taken as the text {shown(str(_plain(value)))}"
    yield tell("coerced", message, "write the text that is meant", node=node.id, field=spec.name)


def _tokens(node: Node, name: str, value: str) -> Iterator[Finding]:
    token = find_token(name, value)
    if token is not None:
        message = f"{shown(token)} is filled in by the editor; ComfyUI keeps it as it stands"
        remedy = "write the name that is meant, or %year%, %month%, %day%, which ComfyUI fills in"
        yield info("frontend_token", message, remedy, node=node.id, field=name)


def _boolean(node: Node, spec: InputSpec, value: Value) -> Iterator[Finding]:
    if isinstance(value, bool):
        return
    tell = info if value in (0, 1) else warning
    message = f"{shown(value)} is taken as {str(bool(value)).lower()}"
    yield tell("coerced", message, "write true or false", node=node.id, field=spec.name)


def _plain(value: Value) -> object:
    return [*value] if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _converted(type_: str, value: Value) -> float | None:
    """The number that ComfyUI makes of a value; None when it fails."""
    if isinstance(value, Mapping | tuple) or value is None:
        return None
    try:
        return _NUMBERS[type_](value)
    except (ValueError, OverflowError):
        return None


_NUMBERS: dict[str, Callable[[str | float], float]] = {"INT": int, "FLOAT": float}
