"""A UI file turned into the API graph that the editor would queue, and into nodes as the file has them.

Never raises on any JSON tree: what is wrong becomes a finding.
Source: `graphToPrompt` in ComfyUI_frontend's src/utils/executionUtil.ts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyfarm.workflow.editor_nodes import group_name, is_subgraph, makes_links
from comfyfarm.workflow.file_node import Editor, FileNode
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui import notes
from comfyfarm.workflow.ui.assemble import Assembler
from comfyfarm.workflow.ui.groups import WHOLE, Group, read_group
from comfyfarm.workflow.ui.hints import model_hints
from comfyfarm.workflow.ui.node_inputs import InputReader
from comfyfarm.workflow.ui.plain import listed
from comfyfarm.workflow.ui.promoted import Hosts
from comfyfarm.workflow.ui.scopes import Scope, unfold, walk
from comfyfarm.workflow.ui.tree import UiGraph, UiNode, read_graph
from comfyfarm.workflow.ui.widgets import WidgetNames
from comfyfarm.workflow.ui.wires import Wiring

_MANY = 20  # entries of one kind that are named one by one


@dataclass(frozen=True, slots=True)
class Converted:
    """What a UI file turned into."""

    graph: dict[str, Any]
    """In API format, as JSON: what would run."""
    nodes: tuple[FileNode, ...]
    """Every node of the file, also those that would not run."""
    findings: tuple[Finding, ...]


def convert(tree: Mapping[str, Any], schema: NodeSchema, *, editor: Editor = "1.58") -> Converted:
    """Convert a UI file of either schema, with all its subgraphs."""
    return _Conversion(tree, schema, editor).run()


class _Conversion:
    def __init__(self, tree: Mapping[str, Any], schema: NodeSchema, editor: Editor) -> None:
        self._tree = tree
        self._schema = schema
        self._editor = editor
        self._names = WidgetNames(schema)
        self._hosts = Hosts(self._names)
        self._findings: list[Finding] = []
        extra = tree.get("extra")
        self._extra: Mapping[str, Any] = extra if isinstance(extra, Mapping) else {}
        self._raw = _definitions(tree)
        self._graphs: dict[str, UiGraph] = {}
        self._groups: dict[str, Group] = {}

    def run(self) -> Converted:
        """The whole conversion."""
        root = read_graph(self._tree)
        self._look_at(root)
        top = unfold(root, self._define, self._findings)
        self._findings += [notes.unused_subgraph(key) for key in self._raw if key not in self._graphs][:_MANY]
        self._fill(top)
        reader = InputReader(self._names, Wiring(), self._hosts, is_inner=self._editor == "1.45")
        assembler = Assembler(self._schema, reader, model_hints(self._tree.get("models")))
        for scope, node in walk(top):
            assembler.add(scope, node)
            if makes_links(node.type) and scope.is_active(node) and not scope.graph.has_everywhere:
                self._findings.append(notes.use_everywhere(scope.id_of(node), node.type))
        found = (*self._findings, *assembler.findings)
        return Converted(assembler.graph, tuple(assembler.nodes), found)

    def _define(self, node: UiNode) -> "UiGraph | Finding | None":
        if node.type in self._raw:
            if node.type not in self._graphs:
                raw = self._raw[node.type]
                name = raw.get("name")
                self._graphs[node.type] = read_graph(raw, name=name if isinstance(name, str) else node.type)
                self._look_at(self._graphs[node.type])
            return self._graphs[node.type]
        name = group_name(node.type)
        if name is not None and not self._schema.knows(node.type):
            group = self._group(name)
            return notes.missing_group(node.id, name) if group is None else group.graph
        if is_subgraph(node.type):
            return notes.missing_subgraph(node.id, node.type)
        return None

    def _group(self, name: str) -> Group | None:
        if name not in self._groups:
            groups = self._extra.get("groupNodes")
            raw = groups.get(name) if isinstance(groups, Mapping) else None
            if not isinstance(raw, Mapping):
                return None
            self._groups[name] = read_group(raw, name=name, names=self._names)
        return self._groups[name]

    def _fill(self, top: Scope) -> None:
        """Give every scope the values of its host: groups first, whose values count in every editor."""
        scopes = [top]
        for scope in scopes:
            scopes.extend(scope.children.values())
        for scope in scopes:
            host = scope.host
            name = group_name(host.type) if host is not None and scope.is_group else None
            if host is not None and scope.parent is not None and name in self._groups:
                values = scope.parent.pins.get((host.id, WHOLE), host.values)  # of a group in a group
                if isinstance(values, list):
                    scope.pins.update(self._groups[name].values(values))
        for scope in scopes:
            self._hosts.read(scope)

    def _look_at(self, graph: UiGraph) -> None:
        self._findings += [notes.bad_node(what) for what in graph.odd[:_MANY]]
        self._findings += [notes.duplicate_id(*pair) for pair in graph.twice[:_MANY]]
        ends = {graph.entry, graph.exit} if graph.inputs or graph.outputs else set()
        known = graph.nodes.keys() | ends
        stray = sum(wire.target not in known or wire.origin not in known for wire in graph.wires.values())
        if stray:
            self._findings.append(notes.dangling_rows(stray, graph.name))


def _definitions(tree: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The definitions of subgraphs by id, those inside other definitions too."""
    found: dict[str, Mapping[str, Any]] = {}
    waiting = [tree]
    for raw in waiting:
        definitions = raw.get("definitions")
        for item in listed(definitions.get("subgraphs")) if isinstance(definitions, Mapping) else ():
            if isinstance(item, Mapping):
                waiting.append(item)
                if isinstance(item.get("id"), str):
                    found.setdefault(item["id"], item)
    return found
