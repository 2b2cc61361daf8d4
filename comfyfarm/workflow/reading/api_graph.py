"""An API graph as it was found, made fit to be looked at: nodes checked for their shape, strays left out."""

from collections.abc import Iterator, Mapping
from typing import Any

from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Finding, error, warning
from comfyfarm.workflow.strict import Flaw, shown_text

EXPORT = 'in ComfyUI choose "Export (API)", and pass that file'
RESIDUE = "is_changed"
"""What an executed prompt leaves in its nodes; kept, it would pin the cache."""
_LEFT_OUT = "it is left out; ComfyUI would refuse it"
_MAX_ID = 200
"""Characters of a node id. Ids are paths of numbers and names, and stand in each message."""
_SHOWN = 60
_MOST_STRAYS = 20
"""Keys beside the nodes that are named one by one."""


def usable_nodes(graph: Mapping[str, Any], noticed: list[Finding]) -> dict[str, Any]:
    """The nodes that have a class; what is wrong with the others, and with their inputs, is noticed."""
    nodes: dict[str, Any] = {}
    strays = 0
    for key, raw in graph.items():
        if _is_good(key, raw):
            nodes[key] = _node(key, raw, graph, noticed)
            continue
        if _is_stray(key, raw):
            strays += 1
            if strays <= _MOST_STRAYS:
                noticed.append(_stray(key))
            continue
        noticed.extend(_node_findings(key, raw))
        if _is_usable(key, raw):
            nodes[key] = _node(key, raw, graph, noticed)
    if strays > _MOST_STRAYS:
        more = strays - _MOST_STRAYS
        message = "1 more key is no node" if more == 1 else f"{more} more keys are no nodes"
        noticed.append(warning("stray_key", message, _LEFT_OUT))
    return nodes


def has_nodes(graph: Mapping[str, Any]) -> bool:
    """Whether any value looks like a node, be it a broken one."""
    return any(map(_looks_like_node, graph.values()))


def placed(flaw: Flaw, depth: int) -> Finding:
    """The finding, with node and input where the flaw lies in one; the graph lies `depth` steps deep."""
    match flaw.path[depth:]:
        case (str(node), "inputs", str(name), *_):
            return flaw.finding.model_copy(update={"node": _id(node), "field": _kept(name)})
        case (str(node), str(name), *_):
            return flaw.finding.model_copy(update={"node": _id(node), "field": _kept(name)})
    return flaw.finding


def kind_of_value(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")


def _is_stray(key: str, raw: Any) -> bool:
    """Keys that people and programs add beside the nodes, such as `_comment` or `version`."""
    looks_like_id = key[:1].isdigit() or key.startswith("-")
    return not looks_like_id and not _looks_like_node(raw)


def _looks_like_node(raw: Any) -> bool:
    return isinstance(raw, dict) and ("class_type" in raw or "inputs" in raw)


def _stray(key: str) -> Finding:
    shown = key[:_SHOWN]
    return warning("stray_key", f"{shown!r} is no node", _LEFT_OUT, field=shown)


def _is_good(key: str, raw: Any) -> bool:
    """Whether there is nothing to say, as of nearly all nodes; a graph may have a hundred thousand."""
    return _is_usable(key, raw) and isinstance(raw.get("inputs"), dict)


def _is_usable(key: str, raw: Any) -> bool:
    if not isinstance(raw, dict) or len(key) > _MAX_ID:
        return False
    class_type = raw.get("class_type")
    return isinstance(class_type, str) and class_type != ""


def _node_findings(key: str, raw: Any) -> Iterator[Finding]:
    node = _id(key)
    if len(key) > _MAX_ID:
        yield error("node_id", f"its id has {len(key)} characters", "give it a short id", node=node)
    if not isinstance(raw, dict):
        yield error("class_type", f"holds {kind_of_value(raw)}, not a node", EXPORT, node=node)
        return
    class_type = raw.get("class_type")
    if not isinstance(class_type, str) or not class_type:
        is_missing = class_type is None or class_type == ""
        message = "has no class_type" if is_missing else f"class_type is {kind_of_value(class_type)}"
        yield error("class_type", message, EXPORT, node=node, field="class_type")
    if "inputs" in raw and not isinstance(raw["inputs"], dict):
        message = f"inputs is {kind_of_value(raw['inputs'])}, not an object"
        yield error("inputs", message, EXPORT, node=node, field="inputs")


def _node(key: str, raw: dict[str, Any], graph: Mapping[str, Any], noticed: list[Finding]) -> dict[str, Any]:
    given = raw.get("inputs")
    inputs = given if isinstance(given, dict) else {}
    turned: dict[str, Any] = {}
    for name, value in inputs.items():
        if type(value) is list and value and type(value[0]) is int and _is_numeric_link(value, graph):
            turned[name] = [str(value[0]), value[1]]
            message = f"links to node {value[0]} by a number, and ids are text"
            remedy = "it is read as text; ComfyUI would fail"
            noticed.append(warning("numeric_link_id", message, remedy, node=_id(key), field=_kept(name)))
    if inputs is given and not turned and RESIDUE not in raw:
        return raw
    kept = {name: value for name, value in raw.items() if name != RESIDUE}
    return {**kept, "inputs": {**inputs, **turned}}


def _is_numeric_link(value: list[Any], graph: Mapping[str, Any]) -> bool:
    """Of a list that begins with a whole number."""
    return len(value) == 2 and type(value[1]) is int and str(value[0]) in graph


def _id(key: str) -> NodeId:
    return NodeId(_kept(key, most=_MAX_ID))


def _kept(text: str, *, most: int = _SHOWN) -> str:
    return shown_text(text[:most])
