"""In which order the first prompt needs model files, so that they may come in that order.

With the graphs: as ComfyUI runs them, from what is saved back to what it depends on. With a lock alone: by
folder, as most graphs go. Largest first among equals, since the largest takes longest.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from comfyfarm.ids import NodeId
from comfyfarm.plan.order_of_models import NEVER, Place, Ranks, place_of
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.reading.reader import read
from comfyfarm.workflow.references.find import Reference, find_references
from comfyfarm.workflow.schema import NodeSchema

_FAR = 3


def execution_order(graph: Workflow, is_output: Callable[[str], bool]) -> tuple[NodeId, ...]:
    """The nodes that ComfyUI would run, in its order.

    `is_output` tells whether a class is run for its own sake. Inputs that a node asks for only when it needs
    them count as needed. A node in a cycle is left out, as is all that waits for it.

    Source: `TopologicalSort.add_node` and `ExecutionList.ux_friendly_pick_node` in ComfyUI's
    comfy_execution/graph.py: of the nodes that can run, outputs first, then what is one or two steps from an
    output, then as they were found.
    """
    outputs = [node.id for node in graph.nodes if is_output(node.class_type)]
    found = _reachable(graph, outputs)
    feeds: dict[NodeId, set[NodeId]] = {node: set() for node in found}
    waits: dict[NodeId, set[NodeId]] = {node: set() for node in found}
    for node in found:
        waits[node] = {source for source in _sources(graph, node) if source in found}
        for source in waits[node]:
            feeds[source].add(node)
    steps = _steps_to_output(outputs, waits)
    ready = [(steps.get(node, _FAR), found[node], node) for node in found if not waits[node]]
    heapq.heapify(ready)
    order: list[NodeId] = []
    while ready:
        *_, node = heapq.heappop(ready)
        order.append(node)
        for blocked in feeds[node]:
            waits[blocked].discard(node)
            if not waits[blocked]:
                heapq.heappush(ready, (steps.get(blocked, _FAR), found[blocked], blocked))
    return tuple(order)


def ranks_of(
    graphs: Iterable[tuple[Workflow, Sequence[Reference]]], is_output: Callable[[str], bool]
) -> Ranks:
    """When each file is needed, by graphs in the order in which their prompts come, with their references.

    What no node that runs names has no rank; nor has what lies in no models folder.
    """
    ranks: dict[Place, int] = {}
    begin = 0
    for graph, references in graphs:
        turn = {node: at for at, node in enumerate(execution_order(graph, is_output), begin)}
        begin += len(turn)
        for reference in references:
            if reference.active and reference.folder and reference.path and reference.node in turn:
                place = place_of(reference.folder, reference.path)
                ranks[place] = min(ranks.get(place, NEVER), turn[reference.node])
    return ranks


def ranks_of_files(files: Mapping[str, bytes], schema: NodeSchema) -> Ranks:
    """The same of workflow files of any format, by their names, in the order in which their prompts come.

    Raises:
        InputError: one of them is no workflow.
    """
    readings = [read(data, name=name, schema=schema) for name, data in files.items()]
    graphs = [(one.workflow, find_references(one.nodes, schema).references) for one in readings]
    return ranks_of(graphs, schema.is_output_node)


def _reachable(graph: Workflow, outputs: Sequence[NodeId]) -> dict[NodeId, int]:
    """What outputs depend on, with the turn in which ComfyUI comes upon it: depth first, last input first."""
    found: dict[NodeId, int] = {}
    for output in outputs:
        ahead = [output]
        while ahead:
            node = ahead.pop()
            if node in found:
                continue
            found[node] = len(found)
            ahead.extend(_sources(graph, node))
    return found


def _sources(graph: Workflow, node: NodeId) -> list[NodeId]:
    made = graph.get(node)
    return [] if made is None else [link.node for _, link in made.links if graph.get(link.node) is not None]


def _steps_to_output(outputs: Iterable[NodeId], waits: Mapping[NodeId, set[NodeId]]) -> Mapping[NodeId, int]:
    steps: dict[NodeId, int] = {}
    at: set[NodeId] = set(outputs)
    for step in range(_FAR):
        at = {node for node in at if node not in steps}
        steps |= dict.fromkeys(at, step)
        at = {source for node in at for source in waits[node]}
    return steps
