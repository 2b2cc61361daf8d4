"""A UI file as data: graphs of nodes and wires, read tolerantly from either schema.

Odd entries never raise; what cannot be read is counted in `odd` and left out. Ids are text here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from comfyfarm.workflow.ui.plain import id_of, listed, node_items, number

MOST_INPUTS = 256
"""Of one node, that are looked at; real nodes have 60."""
MUTED = 2
BYPASSED = 4
_ANY = "*"


@dataclass(slots=True)
class Slot:
    """An input or output of a node, or of a subgraph as seen from inside."""

    name: str
    type: str
    link: str | None
    """Of an input: the wire that ends here."""
    links: tuple[str, ...]
    """Of an output, or of a subgraph's input: the wires that begin here."""
    widget: str | None
    """Name of the widget that this input belongs to."""
    label: str | None


@dataclass(slots=True)
class Wire:
    """A link of a graph."""

    origin: str
    origin_slot: int
    target: str
    target_slot: int


@dataclass(slots=True, eq=False)
class UiNode:
    """A node as the file has it."""

    id: str
    type: str
    title: str | None
    mode: int
    inputs: list[Slot]
    outputs: list[Slot]
    values: list[Any] | dict[str, Any]
    """`widgets_values`: by place, or by name."""
    properties: Mapping[str, Any]
    by_name: Mapping[str, Any] | None = None
    """`widgets_values_named` of editors since 1.49, when it says the same as `widgets_values`."""
    places: dict[str, int] | None = None
    """Worked out when asked for: the places of inputs by name, and by the name of their widget."""

    @property
    def is_off(self) -> bool:
        """Whether it is muted or bypassed itself."""
        return self.mode in (MUTED, BYPASSED)


@dataclass(slots=True, eq=False)
class UiGraph:
    """The file's graph, or the definition of a subgraph."""

    name: str
    nodes: dict[str, UiNode] = field(default_factory=dict)
    wires: dict[str, Wire] = field(default_factory=dict)
    inputs: list[Slot] = field(default_factory=list)
    outputs: list[Slot] = field(default_factory=list)
    entry: str = "-10"
    """Id of the node that stands for the subgraph's inputs."""
    exit: str = "-20"
    """Id of the node that stands for its outputs."""
    twice: list[tuple[str, str]] = field(default_factory=list)
    """Ids that stood twice, with the new id of the second node."""
    odd: list[str] = field(default_factory=list)
    """What could not be read as a node, shortly."""
    has_everywhere: bool = False
    """Whether the links of Use Everywhere stand in the file."""
    is_group: bool = False
    """Whether it is the template of a legacy group node."""
    exits: dict[int, Wire] | None = None
    """Worked out when asked for: the wire to each slot of the exit."""
    entered: dict[int, list[tuple[UiNode, int]]] | None = None
    """Worked out when asked for: the inputs that each slot of the entry leads to."""
    entries: dict[str, int] | None = None
    """Worked out when asked for: the slots of the entry by name."""
    shown: dict[str, str] | None = None
    """Worked out when asked for: the names of slots of the entry by that of the widget they lead to."""


def read_graph(raw: Mapping[str, Any], *, name: str = "") -> UiGraph:
    """The graph in a file's or a definition's JSON object."""
    graph = UiGraph(name=name)
    for item in node_items(raw.get("nodes")):
        _add_node(graph, item, raw)
    for key, item in _link_items(raw.get("links")):
        read = _wire(item, key)
        if read is not None:
            graph.wires[read[0]] = read[1]
    graph.inputs = [_slot(item) for item in listed(raw.get("inputs"))]
    graph.outputs = [_slot(item) for item in listed(raw.get("outputs"))]
    graph.entry = _io_id(raw.get("inputNode"), "-10")
    graph.exit = _io_id(raw.get("outputNode"), "-20")
    extra = raw.get("extra")
    if isinstance(extra, Mapping):
        _add_everywhere(graph, listed(extra.get("ue_links")))
    return graph


def read_node(raw: Mapping[str, Any], node_id: str) -> UiNode:
    """One node under the id that it is to have."""
    values = raw.get("widgets_values")
    kind, title, mode, more = (raw.get(key) for key in ("type", "title", "mode", "properties"))
    return UiNode(
        id=node_id,
        type=kind if isinstance(kind, str) else "",
        title=title if isinstance(title, str) and title else None,
        mode=mode if isinstance(mode, int) else 0,
        inputs=[_slot(item) for item in listed(raw.get("inputs"))],
        outputs=[_slot(item) for item in listed(raw.get("outputs"))],
        values=values if isinstance(values, list | dict) else [],
        properties=more if isinstance(more, Mapping) else {},
        by_name=_same_named(raw.get("widgets_values_named"), values),
    )


def _add_node(graph: UiGraph, raw: Any, whole: Mapping[str, Any]) -> None:
    node_id = id_of(raw.get("id")) if isinstance(raw, Mapping) else None
    if node_id is None or not isinstance(raw.get("type"), str) or not raw["type"]:
        graph.odd.append(f"{'id ' + node_id if node_id else str(type(raw).__name__)}")
        return
    if node_id in graph.nodes:
        fresh = _fresh_id(graph, whole)
        graph.twice.append((node_id, fresh))
        node_id = fresh
    graph.nodes[node_id] = read_node(raw, node_id)


def _add_everywhere(graph: UiGraph, links: list[Any]) -> None:
    """The links that the pack Use Everywhere makes when it queues; since version 5 it writes them down."""
    for at, item in enumerate(links):
        keys = ("upstream", "upstream_slot", "downstream", "downstream_slot")
        read = (
            _wire([f"ue{at}", *(item.get(key) for key in keys)], None) if isinstance(item, Mapping) else None
        )
        if read is None:
            continue
        link, wire = read
        graph.has_everywhere = True
        node = graph.nodes.get(wire.target)
        is_there = node is not None and 0 <= wire.target_slot < len(node.inputs)
        if node is not None and is_there and node.inputs[wire.target_slot].link is None:
            node.inputs[wire.target_slot].link = link
        elif wire.target != graph.exit:
            continue
        graph.wires[link] = wire


def _fresh_id(graph: UiGraph, whole: Mapping[str, Any]) -> str:
    """As the editor counts on: behind the highest id that was given so far."""
    if graph.twice:
        highest = int(graph.twice[-1][1])
    else:
        ids = (id_of(item.get("id")) for item in node_items(whole.get("nodes")) if isinstance(item, Mapping))
        state = whole.get("state")
        last = state.get("lastNodeId") if isinstance(state, Mapping) else whole.get("last_node_id")
        known = chain(ids, [id_of(last)])
        highest = max((int(item) for item in known if item and item.isdecimal()), default=0)
    return str(highest + 1)


def _link_items(links: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(links, Mapping):
        yield from links.items()
    else:
        yield from ((None, item) for item in listed(links))


def _wire(raw: Any, key: Any) -> tuple[str, Wire] | None:
    if isinstance(raw, list) and len(raw) >= 5:
        parts = raw[:5]
    elif isinstance(raw, Mapping):
        parts = [raw.get("id", key), raw.get("origin_id"), raw.get("origin_slot")]
        parts += [raw.get("target_id"), raw.get("target_slot")]
    else:
        return None
    link, origin, target = id_of(parts[0]), id_of(parts[1]), id_of(parts[3])
    if link is None or origin is None or target is None:
        return None
    return link, Wire(origin, number(parts[2]), target, number(parts[4]))


def _slot(raw: Any) -> Slot:
    if not isinstance(raw, Mapping):
        return Slot("", _ANY, None, (), None, None)
    name, widget, label = raw.get("name"), raw.get("widget"), raw.get("label")
    widget_name = widget.get("name") if isinstance(widget, Mapping) else None
    links = raw.get("linkIds") if "linkIds" in raw else raw.get("links")
    return Slot(
        name=name if isinstance(name, str) else "",
        type=_type(raw.get("type")),
        link=id_of(raw.get("link")),
        links=tuple(link for item in listed(links) if (link := id_of(item)) is not None),
        widget=widget_name if isinstance(widget_name, str) else None,
        label=label if isinstance(label, str) else None,
    )


def _type(value: Any) -> str:
    # A list is what old editors wrote for a combo's options; 0 and -1 stand for any type and events.
    if isinstance(value, list):
        return "COMBO"
    return value if isinstance(value, str) else _ANY


def _same_named(named: Any, values: Any) -> Mapping[str, Any] | None:
    is_same = isinstance(named, Mapping) and named and list(named.values()) == values
    return named if is_same else None


def _io_id(raw: Any, otherwise: str) -> str:
    found = id_of(raw.get("id")) if isinstance(raw, Mapping) else None
    return otherwise if found is None else found
