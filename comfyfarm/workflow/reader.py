"""From the bytes of a file to a workflow: API format, bare or as the body of `POST /prompt`."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from comfyfarm.ids import NodeId
from comfyfarm.workflow.findings import Finding, Refused, error, has_errors, info, warning
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.strict import Flaw, has_bom, parse, shown_text
from comfyfarm.workflow.strict import strict_json as strict_json

_EXPORT = 'in ComfyUI choose "Export (API)", and pass that file'
_IMAGES = ((b"\x89PNG", "a PNG picture"), (b"RIFF", "a WebP picture or sound"), (b"\xff\xd8\xff", "a JPEG"),
           (b"\x1aE\xdf\xa3", "a WebM or Matroska file"), (b"fLaC", "a FLAC file"), (b"OggS", "an Ogg file"),
           (b"PK\x03\x04", "a zip archive"))  # fmt: skip
_RESIDUE = "is_changed"  # what an executed prompt leaves in its nodes; kept, it would pin the cache


class Reading(NamedTuple):
    """A workflow with what was noticed, and mended, on the way."""

    workflow: Workflow
    format: str
    """`api`. UI format comes with its converter."""
    findings: tuple[Finding, ...]


def read_workflow(data: bytes, *, name: str) -> Workflow:
    """Read a workflow file in API format.

    Raises:
        Refused: a `WorkflowError` that names file, node, field and remedy, all flaws at once.
    """
    return read(data, name=name).workflow


def read(data: bytes, *, name: str) -> Reading:
    """Read a workflow file, with what is worth knowing about it.

    Raises:
        Refused: as `read_workflow` does.
    """
    _refuse_other_files(data, name)
    tree, flaws = parse(data, name=name)
    noticed = [_placed(flaw) for flaw in flaws if _RESIDUE not in flaw.path]
    if has_bom(data):
        noticed.append(warning("bom", "begins with a byte order mark", "save it as UTF-8 without BOM"))
    if not isinstance(tree, dict):
        message = f"holds {_kind(tree)}, not an object of nodes"
        raise Refused(name, [*noticed, error("not_a_workflow", message, _EXPORT)])
    graph, wrapped = _unwrap(tree)
    if wrapped:
        noticed.append(info("wrapped", "the body of a /prompt request", "its graph is used, the rest is not"))
    _refuse_ui_format(graph, name)
    nodes = _nodes(graph, noticed)
    if has_errors(noticed):
        raise Refused(name, noticed)
    if not nodes:
        raise Refused(name, [*noticed, error("empty_graph", "there is no node in it", _EXPORT)])
    return Reading(Workflow.from_api(nodes, name=name), "api", tuple(noticed))


def _placed(flaw: Flaw) -> Finding:
    """The finding, with node and input where the flaw lies in one."""
    match flaw.path[1:] if flaw.path[:1] == ("prompt",) else flaw.path:
        case (str(node), "inputs", str(name), *_):
            return flaw.finding.model_copy(
                update={"node": NodeId(shown_text(node)), "field": shown_text(name)}
            )
        case (str(node), str(name), *_):
            return flaw.finding.model_copy(update={"node": NodeId(shown_text(node)), "field": name})
    return flaw.finding


def _refuse_other_files(data: bytes, name: str) -> None:
    kind = next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)
    if kind is None and data[4:8] == b"ftyp":
        kind = "an MP4 video"
    if kind is not None:
        raise Refused(name, [error("not_a_workflow", f"is {kind}, not JSON", f"open it and {_EXPORT}")])
    if not data.strip():
        raise Refused(name, [error("not_a_workflow", "the file is empty", _EXPORT)])


def _unwrap(tree: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The graph inside `{"prompt": {...}}`; a node may be called `prompt`, and has a class."""
    inner = tree.get("prompt")
    if isinstance(inner, dict) and "class_type" not in inner:
        return inner, True
    return tree, False


def _refuse_ui_format(graph: Mapping[str, Any], name: str) -> None:
    if isinstance(graph.get("nodes"), list):
        message = "is in UI format (what the editor saves), not in API format"
        raise Refused(name, [error("ui_format", message, _EXPORT)])


def _nodes(graph: Mapping[str, Any], noticed: list[Finding]) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for key, raw in graph.items():
        if _is_stray(key, raw):
            message = f"{key[:60]!r} is no node"
            noticed.append(
                warning("stray_key", message, "it is left out; ComfyUI would refuse it", field=key)
            )
            continue
        found = list(_node_findings(NodeId(key), raw))
        noticed.extend(found)
        if not has_errors(found):
            nodes[key] = _node(NodeId(key), raw, graph, noticed)
    return nodes


def _is_stray(key: str, raw: Any) -> bool:
    """Keys that people and programs add beside the nodes, such as `_comment` or `version`."""
    looks_like_id = key[:1].isdigit() or key.startswith("-")
    is_node = isinstance(raw, dict) and ("class_type" in raw or "inputs" in raw)
    return not looks_like_id and not is_node


def _node_findings(node: NodeId, raw: Any) -> Iterator[Finding]:
    if not isinstance(raw, dict):
        yield error("class_type", f"holds {_kind(raw)}, not a node", _EXPORT, node=node)
        return
    class_type = raw.get("class_type")
    if not isinstance(class_type, str) or not class_type:
        message = "has no class_type" if class_type is None else f"class_type is {_kind(class_type)}"
        yield error("class_type", message, _EXPORT, node=node, field="class_type")
    if "inputs" in raw and not isinstance(raw["inputs"], dict):
        message = f"inputs is {_kind(raw['inputs'])}, not an object"
        yield error("inputs", message, _EXPORT, node=node, field="inputs")


def _node(
    node: NodeId, raw: Mapping[str, Any], graph: Mapping[str, Any], noticed: list[Finding]
) -> dict[str, Any]:
    inputs = dict(raw.get("inputs", {}))
    for name, value in inputs.items():
        if _is_numeric_link(value, graph):
            inputs[name] = [str(value[0]), value[1]]
            message = f"links to node {value[0]} by a number, and ids are text"
            remedy = "it is read as text; ComfyUI would fail"
            noticed.append(warning("numeric_link_id", message, remedy, node=node, field=name))
    kept = {key: value for key, value in raw.items() if key not in {"inputs", _RESIDUE}}
    return {"inputs": inputs, **kept}


def _is_numeric_link(value: Any, graph: Mapping[str, Any]) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(type(item) is int for item in value) and str(value[0]) in graph


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
