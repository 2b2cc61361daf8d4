"""The value of a combo against what a schema offers.

A running server's lists are true. A snapshot's are those of one version without files: a name of a file
is not looked for in them, and a text that is like none of them may be one that a newer version has.
"""

from collections.abc import Iterator, Mapping

from comfyfarm.workflow.checks.likeness import Suggestions, is_slip
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.model_files import is_model_file
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.node import Node, Value, texts_in
from comfyfarm.workflow.schema import NodeSchema, names_a_file
from comfyfarm.workflow.shown import shown

_JUDGED_BY_THE_NODE = frozenset({"SelectModelDevice", "SelectCLIPDevice", "SelectVAEDevice"})
"""Classes that take other values than they offer. Source: `validate_inputs` in nodes_multigpu.py."""


def choice_findings(
    node: Node, spec: InputSpec, value: Value, schema: NodeSchema, *, check_files: bool, like: Suggestions
) -> Iterator[Finding]:
    """What is wrong with the value of a combo.

    `check_files`: whether names of models have to be in the schema's lists.
    """
    options = spec.options or ()
    if value in options or _is_several_of(spec, value) or node.class_type in _JUDGED_BY_THE_NODE:
        return
    if spec.upload is not None or schema.folders.is_asset_input(node.class_type, spec.name):
        if check_files and schema.live and isinstance(value, str):
            yield from _asset(node, spec, value, schema)
    elif _is_file_of(node, spec, schema):
        yield from _file(node, spec, value, schema, check_files=check_files, like=like)
    elif options:  # where a list is empty in a schema, the node takes anything
        yield _not_offered(node, spec, value, schema, like)


def separator_findings(node: Node, name: str, value: Value, schema: NodeSchema) -> Iterator[Finding]:
    r"""Names of model files with `\` in inputs that are in no schema, also inside of objects."""
    if isinstance(value, Mapping) and (value.get("on") is False or value.get("active") is False):
        return  # rows of a list of LoRAs that are switched off
    is_mapped = isinstance(value, str) and bool(schema.folders.folders(node.class_type, name))
    for text in texts_in(value, keys=True):
        if "\\" in text and (is_mapped or is_model_file(text)):
            yield _separator(node, name, text)


def _is_several_of(spec: InputSpec, value: Value) -> bool:
    if not spec.multiselect or not isinstance(value, tuple):
        return False
    return all(item in (spec.options or ()) for item in value)


def _file(
    node: Node, spec: InputSpec, value: Value, schema: NodeSchema, *, check_files: bool, like: Suggestions
) -> Iterator[Finding]:
    options = spec.options or ()
    if isinstance(value, str) and "\\" in value:
        turned = slashed(value)
        if not (schema.live and check_files) or turned in options:
            yield _separator(node, spec.name, value)
            return
    if check_files:
        yield _not_offered(node, spec, value, schema, like)


def _asset(node: Node, spec: InputSpec, value: str, schema: NodeSchema) -> Iterator[Finding]:
    """Servers list the files at the top of their folder of inputs, and no others."""
    if value and not value.endswith("]") and "/" not in value and "\\" not in value:
        message = f"{schema.name} has no input file {shown(value)} now"
        remedy = "put it beside the workflow or into --inputs: a render uploads it"
        yield warning("missing_asset", message, remedy, node=node.id, field=spec.name)


def _separator(node: Node, name: str, value: str) -> Finding:
    return error(
        "separator",
        f"{shown(value)} has folders as Windows writes them: a server on Linux does not find it",
        f"write {shown(slashed(value))}",
        node=node.id,
        field=name,
    )


def _not_offered(node: Node, spec: InputSpec, value: Value, schema: NodeSchema, like: Suggestions) -> Finding:
    options = spec.options or ()
    if schema.live and not options:
        return _nothing_there(node, spec, value, schema)
    near = tuple(map(str, options)) if len(options) == 1 else like.of(node, spec, value)
    if isinstance(value, str) and not schema.live and not is_slip(value, options):
        return _newer(node, spec, value, schema, near=near)
    message = f"{shown(value)} is not {_of_values(len(options))} that {schema.name} offers"
    remedy = _choose(near)
    if schema.live and isinstance(value, str) and _is_file_of(node, spec, schema):
        remedy = f"{_put(node, spec, schema)}, or {remedy}"
    case = next((option for option in near if option.casefold() == str(value).casefold()), None)
    if case is not None and case != value:
        message, near = f"{shown(value)} differs in case from {case!r}, which {schema.name} offers", (case,)
        remedy = _choose(near)
    # A choice that a dynamic combo does not have is taken and ignored.
    tell = warning if spec.is_dynamic else error
    return tell("not_in_list", message, remedy, node=node.id, field=spec.name)


def _nothing_there(node: Node, spec: InputSpec, value: Value, schema: NodeSchema) -> Finding:
    message = f"{schema.name} has no {shown(value)}: it offers no file here at all"
    return error("not_in_list", message, _put(node, spec, schema), node=node.id, field=spec.name)


def _is_file_of(node: Node, spec: InputSpec, schema: NodeSchema) -> bool:
    return names_a_file(node.class_type, spec.name, spec, folders=schema.folders)


def _put(node: Node, spec: InputSpec, schema: NodeSchema) -> str:
    folders = schema.folders.folders(node.class_type, spec.name)
    if folders:
        return f"put the file into the models folder {folders[0]} of that server"
    return "put the file into the folder that the node reads"


def _of_values(count: int) -> str:
    return "the one value" if count == 1 else f"one of the {count} values"


def _newer(node: Node, spec: InputSpec, value: str, schema: NodeSchema, *, near: tuple[str, ...]) -> Finding:
    offered = _of_values(len(spec.options or ()))
    message = f"{shown(value)} is not {offered} in {schema.name}; a newer one may have it"
    remedy = f"{_choose(near)}, or check against the server that has it (--schema-from URL)"
    return warning("schema_newer", message, remedy, node=node.id, field=spec.name)


def _choose(options: tuple[str, ...]) -> str:
    named = ", ".join(shown(option, most=200) for option in options)
    return f"choose {named or 'one of them'}"
