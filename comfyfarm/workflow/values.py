"""The inputs of one node against its class, as ComfyUI's `validate_inputs` judges them.

Source: `validate_inputs` in ComfyUI's execution.py and `validate_node_input` in
comfy_execution/validation.py, 0.27.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping

from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.node import Link, Value, unwrap
from comfyfarm.workflow.schema import NodeSchema, is_file_input

_EXACT_IN_JAVASCRIPT = 2**53
_ANYTHING = frozenset({"*", "COMFY_MATCHTYPE_V3"})
_SHOWN = 60  # characters of a value in a message; widgets hold whole pictures


def input_findings(
    node: Node, workflow: Workflow, schema: NodeSchema, *, check_files: bool
) -> Iterator[Finding]:
    """What is wrong with the inputs of one node. Nothing is said of a class that is not known.

    `check_files`: whether names of models have to be in the schema's lists.
    """
    for spec in schema.inputs(node.class_type).values():
        if spec.name not in node.inputs:
            yield from _missing(node, spec)
            continue
        value = node.inputs[spec.name]
        if isinstance(value, Link):
            yield from _link_type(node, spec, value, workflow, schema)
        elif not isinstance(value, tuple):
            yield from _literal(node, spec, unwrap(value), schema, check_files=check_files)


def _missing(node: Node, spec: InputSpec) -> Iterator[Finding]:
    # An input that grows is there in its parts only, `images.image0`, and may have none.
    if spec.required and not (spec.is_dynamic and spec.options is None):
        yield error(
            "missing_input",
            f"{node.class_type} needs it, and the file leaves it out",
            "connect or set it, and export again: the server fills in no defaults",
            node=node.id,
            field=spec.name,
        )


def _link_type(
    node: Node, spec: InputSpec, link: Link, workflow: Workflow, schema: NodeSchema
) -> Iterator[Finding]:
    source = workflow.get(link.node)
    outputs = schema.outputs(source.class_type) if source is not None else ()
    if source is None or not 0 <= link.slot < len(outputs):
        return
    if is_file_input(node.class_type, spec.name, spec):
        message = "the name of the model or file comes over a link, so it cannot be known beforehand"
        yield warning(
            "dynamic_model_name", message, "set it in the node itself", node=node.id, field=spec.name
        )
    given = outputs[link.slot]
    if not fits(given, spec.type):
        yield error(
            "type_mismatch",
            f"takes {spec.type} and gets {given} from node {source.id} ({source.class_type})",
            "connect it to an output of that type",
            node=node.id,
            field=spec.name,
        )


def fits(given: str, wanted: str) -> bool:
    """Whether an output of one type may go into an input of another: one type in common is enough."""
    types, takes = _types(given), _types(wanted)
    return bool(types & takes or types & _ANYTHING or takes & _ANYTHING) or wanted.startswith("COMFY_")


def _types(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(","))


def _literal(
    node: Node, spec: InputSpec, value: Value, schema: NodeSchema, *, check_files: bool
) -> Iterator[Finding]:
    if spec.type in _NUMBERS:
        yield from _number(node, spec, value)
    elif spec.options is not None and _is_checked(node, spec, check_files=check_files):
        yield from _option(node, spec, value, schema)


def _number(node: Node, spec: InputSpec, value: Value) -> Iterator[Finding]:
    number = _converted(spec.type, value)
    if number is None:
        yield error(
            "wrong_type",
            f"{_shown(value)} is no {spec.type}",
            "write a number",
            node=node.id,
            field=spec.name,
        )
        return
    if _is_changed(spec, value, number):
        yield _coerced(node, spec, value, number)
    elif spec.type == "INT" and abs(number) > _EXACT_IN_JAVASCRIPT:
        message = f"{number} is beyond what browsers keep exactly: the editor would change it"
        yield warning("js_precision", message, "keep it below 2^53", node=node.id, field=spec.name)
    yield from _range(node, spec, number)


def _is_changed(spec: InputSpec, value: Value, number: float) -> bool:
    """Whether ComfyUI makes something else of it. `64.0` for 64 is the same."""
    if isinstance(value, str | bool) or number != value:
        return True
    return spec.type == "INT" and isinstance(value, float) and abs(value) > _EXACT_IN_JAVASCRIPT


def _coerced(node: Node, spec: InputSpec, value: Value, number: float) -> Finding:
    tell = info if isinstance(value, str) else warning
    message = f"{_shown(value)} is taken as {number}"
    return tell("coerced", message, f"write the {spec.type} that is meant", node=node.id, field=spec.name)


def _range(node: Node, spec: InputSpec, number: float) -> Iterator[Finding]:
    if spec.min is not None and number < spec.min:
        message = f"{number} is below the least, {spec.min}"
        yield error("below_min", message, "raise it", node=node.id, field=spec.name)
    if spec.max is not None and number > spec.max:
        message = f"{number} is above the most, {spec.max}"
        yield error("above_max", message, "lower it", node=node.id, field=spec.name)


def _option(node: Node, spec: InputSpec, value: Value, schema: NodeSchema) -> Iterator[Finding]:
    options = spec.options or ()
    if value in options:
        return
    if spec.multiselect and isinstance(value, tuple) and all(item in options for item in value):
        return
    near = _nearest(value, options)
    # What hangs on a dynamic choice is put together by the server, which may know more.
    tell = warning if spec.is_dynamic else error
    yield tell(
        "not_in_list",
        f"{_shown(value)} is not one of the {len(options)} values that {schema.name} offers",
        f"choose {near}" if near else "choose one of them",
        node=node.id,
        field=spec.name,
    )


def _is_checked(node: Node, spec: InputSpec, *, check_files: bool) -> bool:
    """Uploads come later; where a list is empty in a schema, the node takes anything."""
    if spec.upload is not None:
        return False
    if is_file_input(node.class_type, spec.name, spec):
        return check_files
    return bool(spec.options)


def _nearest(value: Value, options: tuple[Value, ...]) -> str:
    by_fold = {str(option).casefold(): str(option) for option in options}
    near = difflib.get_close_matches(str(value).casefold(), by_fold, n=3)
    return ", ".join(repr(by_fold[item]) for item in near)


def _converted(type_: str, value: Value) -> float | None:
    """The number that ComfyUI makes of a value; None when it fails."""
    if isinstance(value, Mapping | tuple) or value is None:
        return None
    try:
        return _NUMBERS[type_](value)
    except (ValueError, OverflowError):
        return None


def _shown(value: Value) -> str:
    is_nested = isinstance(value, tuple | Mapping)
    text = json.dumps(value, ensure_ascii=False, default=dict) if is_nested else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_NUMBERS: dict[str, Callable[[str | float], float]] = {"INT": int, "FLOAT": float}
