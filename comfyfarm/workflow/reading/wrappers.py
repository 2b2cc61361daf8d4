"""The graph inside what people and programs put around it: bodies of requests, histories, JSON in JSON.

A node may have any id, `prompt` or `workflow` as well: where a value has a `class_type`, there is the graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from comfyfarm.workflow.findings import Finding, Refused
from comfyfarm.workflow.strict import Flaw, Path, parse

MAX_WRAPPERS = 8
"""Wrappers around a graph. A job of ComfyUI's own API has three; a graph as text counts as one."""

# In this order: `prompt` and `output` hold what runs, `workflow` may be the editor's file beside it.
_KEYS = ("prompt", "output", "workflow_api", "workflow_api_json", "workflow", "workflow_json", "graph",
         "input", "extra_data", "extra_pnginfo", "body", "data", "payload", "params", "request")  # fmt: skip
_JSON_STARTS = ("{", "[", '"')


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph as it was found, with what strict reading has against it."""

    tree: dict[str, Any]
    via: tuple[str, ...] = ()
    """The keys that led to it; `text` for JSON in a text."""
    flaws: tuple[Flaw, ...] = ()
    """Of the document that it lies in, and inside of it."""
    place: Path = ()
    """Where it lies in that document."""
    sure: bool = True
    """False when no value of it is a node with a class, so that it may be something else."""


@dataclass(slots=True)
class Found:
    """The graphs of a document: what runs, what the editor shows, or both. Grows while it is searched."""

    api: Graph | None = None
    ui: Graph | None = None
    flaws: list[Flaw] = field(default_factory=list)
    """Outside of both graphs."""
    unreadable: list[Finding] = field(default_factory=list)
    """What is wrong with texts that look like JSON and are none."""
    tree: Any = None
    """The whole document, for messages."""


def find_graphs(data: bytes, *, name: str) -> Found:
    """The graphs in a JSON document.

    Raises:
        Refused: a `WorkflowError`, when it is no JSON, or is beyond the limits of strict reading.
    """
    tree, flaws = parse(data, name=name)
    found = Found(tree=tree)
    _look(_Spot(tree, (), (), flaws), found, name)
    if found.api is None and found.ui is None and isinstance(tree, dict) and not found.unreadable:
        found.api = _likeliest(tree, flaws)
    used = {flaw for graph in (found.api, found.ui) if graph is not None for flaw in graph.flaws}
    found.flaws.extend(flaw for flaw in flaws if flaw not in used)
    return found


def is_api(tree: Any) -> bool:
    """Whether it is an API graph, and no wrapper around one."""
    return isinstance(tree, dict) and any(
        isinstance(value, dict) and "class_type" in value for value in tree.values()
    )


def is_ui(tree: Any) -> bool:
    """Whether it is what the editor saves, of whatever version; other programs write nodes by their id."""
    nodes = tree.get("nodes") if isinstance(tree, dict) else None
    if isinstance(nodes, dict):
        return any(isinstance(node, dict) and isinstance(node.get("type"), str) for node in nodes.values())
    return isinstance(nodes, list)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A value of a document, and where it lies."""

    value: Any
    via: tuple[str, ...]
    place: Path
    flaws: tuple[Flaw, ...]

    def down(self, step: str | int) -> "_Spot":
        shown = step if isinstance(step, str) else f"[{step}]"
        return _Spot(self.value[step], (*self.via, shown), (*self.place, step), self.flaws)

    def graph(self) -> Graph:
        size = len(self.place)
        flaws = tuple(flaw for flaw in self.flaws if flaw.path[:size] == self.place)
        return Graph(self.value, self.via, flaws, self.place)


def _look(start: _Spot, found: Found, name: str) -> None:
    """Search the wrappers for graphs; the first of each format is taken."""
    spots = [start]
    while spots:
        spot = spots.pop()
        if is_api(spot.value):
            found.api = found.api or spot.graph()
        elif is_ui(spot.value):
            found.ui = found.ui or spot.graph()
        elif len(spot.via) < MAX_WRAPPERS:
            spots.extend(reversed(list(_inside(spot, found, name))))


def _inside(spot: _Spot, found: Found, name: str) -> Iterator[_Spot]:
    value = spot.value
    if isinstance(value, dict):
        known = [key for key in _KEYS if key in value]
        if not known and len(value) == 1:  # the answer of /history/<id>: the entry under its id
            known = [key for key, entry in value.items() if isinstance(entry, dict) and "prompt" in entry]
        yield from (spot.down(key) for key in known)
    elif isinstance(value, list):
        yield from (spot.down(step) for step in _steps(value))
    elif isinstance(value, str) and value.lstrip().startswith(_JSON_STARTS):
        try:
            tree, flaws = parse(value.encode("utf-8", "replace"), name=name)
        except Refused as exc:
            found.unreadable.extend(exc.findings)
        else:
            yield _Spot(tree, (*spot.via, "text"), (), flaws)


def _steps(items: list[Any]) -> tuple[int, ...]:
    """Where in a list a graph may be: a history's `[number, id, graph, extra, outputs]`, or a list of one."""
    if len(items) == 1:
        return (0,)
    is_history = len(items) > 2 and isinstance(items[0], int | float) and isinstance(items[1], str)
    return tuple(range(2, min(len(items), 4))) if is_history else ()


def _likeliest(tree: dict[str, Any], flaws: tuple[Flaw, ...]) -> Graph:
    """Where the graph would be, of a document without a single node that has a class."""
    spot = _Spot(tree, (), (), flaws)
    while len(spot.via) < MAX_WRAPPERS:
        key = next((key for key in _KEYS if isinstance(spot.value.get(key), dict)), None)
        if key is None or "inputs" in spot.value[key]:
            break
        spot = spot.down(key)
    return replace(spot.graph(), sure=False)
