"""From the bytes of a file to a workflow, whatever its format and whatever carries it.

API and UI format, bare or wrapped, in JSON or inside a picture, film, sound or model; told apart by
content, never by a name.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from comfyfarm.ids import NodeId
from comfyfarm.workflow.carriers.embedded import Embedded, embedded
from comfyfarm.workflow.file_node import Editor, FileNode, file_node
from comfyfarm.workflow.findings import Finding, Refused, Severity, error, has_errors, info, warning
from comfyfarm.workflow.gc_pause import gc_paused
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import is_textless
from comfyfarm.workflow.reading.api_graph import (
    EXPORT,
    RESIDUE,
    has_nodes,
    kind_of_value,
    placed,
    usable_nodes,
)
from comfyfarm.workflow.reading.both_graphs import disagreement, merged
from comfyfarm.workflow.reading.other_files import other_file
from comfyfarm.workflow.reading.wrappers import Found, Graph, find_graphs
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.strict import Flaw, has_bom

if TYPE_CHECKING:
    from comfyfarm.workflow.ui.convert import Converted

EMPTY = "the file is empty"
MAX_TEXT = 1024 * 1024
"""Characters of one text. Prompts have some thousand; what is longer is a picture or a mesh as base64."""


class Reading(NamedTuple):
    """A workflow with what was noticed, and mended, on the way. Errors are for the caller to act on."""

    workflow: Workflow
    """What would run. Nodes without a usable class are left out, and noticed."""
    format: str
    """`api` or `ui`: of the graph whose values are used."""
    findings: tuple[Finding, ...]
    nodes: tuple[FileNode, ...]
    """All nodes of the file, muted ones as well."""


class _Source(NamedTuple):
    """The graphs of a file before they are read."""

    api: Graph | None
    ui: Graph | None
    findings: list[Finding]


def read_workflow(
    data: bytes, *, name: str, schema: NodeSchema | None = None, editor: Editor = "1.58"
) -> Workflow:
    """Read a workflow file of any format.

    `schema`: what UI format is converted with; None is the shipped one.

    Raises:
        Refused: a `WorkflowError` that names file, node, field and remedy, all flaws at once.
    """
    reading = read(data, name=name, schema=schema, editor=editor)
    if has_errors(reading.findings):
        raise Refused(name, reading.findings)
    return reading.workflow


def read(data: bytes, *, name: str, schema: NodeSchema | None = None, editor: Editor = "1.58") -> Reading:
    """Read a workflow file, with what is worth knowing about it, errors included.

    Raises:
        Refused: a `WorkflowError`, when there is no graph to speak of.
    """
    with gc_paused():
        carrier = embedded(data, name=name)
        source = _from_json(data, name) if carrier is None else _from_carrier(carrier, name)
        if source.api is not None:
            reading = _read_api(source.api, source, name, schema, editor)
        elif source.ui is not None:
            reading = _read_ui(source.ui, source, name, schema, editor)
        else:
            raise Refused(name, source.findings)
    if carrier is None:
        return reading
    return reading._replace(findings=(_carried(carrier), *reading.findings))


def _carried(carrier: Embedded) -> Finding:
    message = f"is {carrier.kind} that carries a graph under {_keys(carrier)}"
    return info("embedded", message, "nothing needs to be done")


def _keys(carrier: Embedded) -> str:
    return " and ".join(key for key, _ in carrier.texts)


def _from_json(data: bytes, name: str) -> _Source:
    bare = data.removeprefix(b"\xef\xbb\xbf")
    if not bare or bare.isspace():
        raise Refused(name, [error("not_a_workflow", EMPTY, EXPORT)])
    found = find_graphs(data, name=name)
    is_unsure = found.ui is None and not (found.api is not None and found.api.sure)
    if is_unsure and (other := other_file(found.tree)) is not None:
        raise Refused(name, [other])
    noticed = [placed(flaw, 0) for flaw in _real(found.flaws)]
    if has_bom(data):
        noticed.append(warning("bom", "begins with a byte order mark", "save it as UTF-8 without BOM"))
    graph = found.api or found.ui
    if graph is None:
        message = f"holds {kind_of_value(found.tree)}, not an object of nodes"
        raise Refused(name, [*noticed, *(found.unreadable or [error("not_a_workflow", message, EXPORT)])])
    if graph.via:
        noticed.append(_wrapped(graph))
    return _Source(found.api, found.ui, noticed)


def _wrapped(graph: Graph) -> Finding:
    via = ".".join(step[:60] for step in graph.via)
    return info("wrapped", f"the graph lies inside {via}", "it is used, what stands beside it is not")


def _from_carrier(carrier: Embedded, name: str) -> _Source:
    noticed = [*carrier.findings]
    found, unreadable = _unwrapped(carrier, name)
    sure = [each.api for each in found if each.api is not None and each.api.sure]
    ui = next((each.ui for each in found if each.ui is not None), None)
    unsure = [each.api for each in found if each.api is not None and ui is None]
    api = next(iter([*sure, *unsure]), None)
    noticed.extend(placed(flaw, 0) for each in found for flaw in _real(each.flaws))
    if api is None and ui is None:
        if not has_errors(unreadable):
            message = f"is {carrier.kind} whose {_keys(carrier)} is no graph"
            unreadable = [error("not_comfy_metadata", message, EXPORT)]
        raise Refused(name, [*noticed, *unreadable])
    noticed.extend(_as_warning(finding) for finding in unreadable)
    return _Source(api, ui, noticed)


def _unwrapped(carrier: Embedded, name: str) -> tuple[list[Found], list[Finding]]:
    found: list[Found] = []
    unreadable: list[Finding] = []
    for key, text in carrier.texts:
        try:
            found.append(find_graphs(text, name=name))
            unreadable.extend(found[-1].unreadable)
        except Refused as exc:
            unreadable.extend(f.model_copy(update={"field": f.field or key}) for f in exc.findings)
    return found, unreadable


def _read_api(graph: Graph, source: _Source, name: str, schema: NodeSchema | None, editor: Editor) -> Reading:
    noticed = [*(placed(flaw, len(graph.place)) for flaw in _real(graph.flaws)), *source.findings]
    if graph.tree and not has_nodes(graph.tree):
        count = len(graph.tree)
        message = f"holds an object of {count} {'key' if count == 1 else 'keys'}, none of which is a node"
        raise Refused(name, [*noticed, error("not_a_workflow", message, EXPORT)])
    nodes = usable_nodes(graph.tree, noticed)
    if not nodes:
        nothing = [] if has_errors(noticed) else [error("empty_graph", "there is no node in it", EXPORT)]
        raise Refused(name, [*noticed, *nothing])
    workflow = Workflow.from_api(nodes, name=name)
    if source.ui is None:
        files = tuple(file_node(node) for node in workflow.nodes)
    else:
        noticed.extend(_as_warning(_placed_in_ui(flaw, source.ui)) for flaw in _real(source.ui.flaws))
        schema = schema or NodeSchema.shipped()
        converted = _converted(source.ui, schema, editor)
        files = merged(workflow, converted)
        found = disagreement(workflow, converted, source.ui.tree, schema)
        noticed.extend([] if found is None else [found])
    return Reading(workflow, "api", (*noticed, *_large_texts(files)), files)


def _read_ui(graph: Graph, source: _Source, name: str, schema: NodeSchema | None, editor: Editor) -> Reading:
    message = "is in UI format (what the editor saves), which no server takes as it is"
    noticed = [
        *(_placed_in_ui(flaw, graph) for flaw in _real(graph.flaws)),
        *source.findings,
        info("ui_format", message, "it is converted as the editor does (comfyfarm convert)"),
    ]
    converted = _converted(graph, schema or NodeSchema.shipped(), editor)
    noticed.extend(converted.findings)
    if not converted.graph:
        message = "no node of it would run" if converted.nodes else "there is no node in it"
        noticed.append(
            error("empty_graph", message, "save a graph with nodes that are neither muted nor notes")
        )
    if not converted.nodes and not converted.graph:
        raise Refused(name, noticed)
    workflow = Workflow.from_api(converted.graph, name=name)
    return Reading(workflow, "ui", (*noticed, *_large_texts(converted.nodes)), converted.nodes)


def _converted(graph: Graph, schema: NodeSchema, editor: Editor) -> "Converted":
    # Loaded for UI format only: most renders read API graphs, over and over.
    from comfyfarm.workflow.ui.convert import convert

    return convert(graph.tree, schema, editor=editor)


def _real(flaws: Iterator[Flaw] | list[Flaw] | tuple[Flaw, ...]) -> Iterator[Flaw]:
    return (flaw for flaw in flaws if RESIDUE not in flaw.path)


def _placed_in_ui(flaw: Flaw, graph: Graph) -> Finding:
    """The finding with the id of the node that the flaw lies in, when that is no part of a subgraph."""
    match flaw.path[len(graph.place) :]:
        case ("nodes", int(place), *rest):
            node = graph.tree["nodes"][place]
            node_id = node.get("id") if isinstance(node, dict) else None
            if isinstance(node_id, int | str) and len(str(node_id)[:100]) < 100:
                key = rest[0] if rest and isinstance(rest[0], str) else None
                return flaw.finding.model_copy(update={"node": NodeId(str(node_id)), "field": key})
    return flaw.finding


def _as_warning(finding: Finding) -> Finding:
    return finding.model_copy(update={"severity": Severity.WARNING})


def _large_texts(nodes: tuple[FileNode, ...]) -> Iterator[Finding]:
    for node in nodes:
        if is_textless(node.inputs):
            continue
        for name, value in node.inputs.items():
            if isinstance(value, str | tuple | Mapping) and (size := _longest(value)) > MAX_TEXT:
                message = f"a text of {size} characters, such as a picture inside the graph"
                remedy = "pass it as an input file: each server would be sent all of it with each prompt"
                yield warning("too_large", message, remedy, node=node.id, field=name[:60])


def _longest(value: Any) -> int:
    """Length of the longest text in a value. Nesting is bounded by strict reading."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, tuple):
        return max((_longest(item) for item in value), default=0)
    if isinstance(value, Mapping):
        return max((_longest(item) for item in value.values()), default=0)
    return 0
