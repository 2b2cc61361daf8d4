"""What comes over a link against what the input takes.

Source: `validate_node_input` in ComfyUI's comfy_execution/validation.py, 0.27. It looks at no match types;
the editor does, so that they are warnings here.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from comfyfarm.workflow.checks.liveness import View
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.input_spec import DYNAMIC_SLOT, MATCH_TYPE, InputSpec
from comfyfarm.workflow.node import Link, Node
from comfyfarm.workflow.schema import NodeSchema, names_a_file

_ANYTHING = frozenset({"*", MATCH_TYPE})


def type_findings(
    node: Node, spec: InputSpec, link: Link, view: View, schema: NodeSchema
) -> Iterator[Finding]:
    """What is wrong with the type that comes over a link which leads to an output."""
    source = view.by_id.get(link.node)
    given = _given(link, view, schema)
    if source is None or given is None:
        return
    if names_a_file(node.class_type, spec.name, spec, folders=schema.folders):
        message = "the name of the model or file comes over a link, so it cannot be known beforehand"
        yield warning(
            "dynamic_model_name", message, "set it in the node itself", node=node.id, field=spec.name
        )
    is_open = spec.type in {MATCH_TYPE, DYNAMIC_SLOT}
    wanted = spec.allowed if is_open else spec.type
    if not fits(given, wanted) or not _same_choices(source.class_type, link, spec, schema):
        tell, code = (warning, "match_type") if is_open else (error, "type_mismatch")
        yield tell(
            code,
            f"takes {wanted} and gets {given} from node {source.id} ({source.class_type})",
            "connect it to an output of that type",
            node=node.id,
            field=spec.name,
        )


def _same_choices(class_type: str, link: Link, spec: InputSpec, schema: NodeSchema) -> bool:
    """Between combos: a list fits a `COMBO` and a list that is the same; a `COMBO` fits no list."""
    if not spec.is_list_type:
        return True
    choices = schema.output_choices(class_type, link.slot)
    if choices is None:
        return bool(types_of(schema.outputs(class_type)[link.slot]) & _ANYTHING)
    return choices == spec.options


def match_findings(
    node: Node, specs: Mapping[str, InputSpec], view: View, schema: NodeSchema
) -> Iterator[Finding]:
    """Inputs of one template that are given different types."""
    groups: dict[str, dict[str, str]] = {}
    for name, value in node.inputs.items():
        spec = specs.get(name)
        if spec is not None and spec.template and isinstance(value, Link):
            given = _given(value, view, schema)
            if given is not None and not types_of(given) & _ANYTHING:
                groups.setdefault(spec.template, {})[name] = given
    for given_types in groups.values():
        if not frozenset.intersection(*map(types_of, given_types.values())):
            shown = ", ".join(f"{name} gets {given}" for name, given in given_types.items())
            message = f"takes one type for all of these, and {shown}; ComfyUI does not look"
            remedy = "connect outputs of one type"
            yield warning("match_type", message, remedy, node=node.id, field=next(iter(given_types)))


def fits(given: str, wanted: str) -> bool:
    """Whether an output of one type may go into an input of another: one type in common is enough."""
    if given == wanted:
        return True
    types, takes = types_of(given), types_of(wanted)
    return bool(types & takes or types & _ANYTHING or takes & _ANYTHING) or wanted.startswith("COMFY_")


@lru_cache(maxsize=1024)
def types_of(text: str) -> frozenset[str]:
    """The types of a union such as `INT,FLOAT`."""
    return frozenset(part.strip() for part in text.split(","))


def _given(link: Link, view: View, schema: NodeSchema) -> str | None:
    """The type of the output that a link takes; None when it leads nowhere or nothing is known."""
    source = view.by_id.get(link.node)
    outputs = schema.outputs(source.class_type) if source is not None else ()
    return outputs[link.slot] if 0 <= link.slot < len(outputs) else None
