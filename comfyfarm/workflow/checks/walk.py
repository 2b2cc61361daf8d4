"""Walks over a graph, without recursion: ComfyUI's own gives up at about 2,000 nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=str)

_ENOUGH_CYCLES = 20  # a person needs one; the cap keeps hostile graphs linear


def find_cycles(edges: Mapping[Name, Sequence[Name]]) -> tuple[tuple[Name, ...], ...]:
    """The cycles of a graph, each once, as nodes in the order in which the edges go.

    Targets that are not in the graph are passed over.
    """
    done: set[Name] = set()
    cycles: dict[frozenset[Name], tuple[Name, ...]] = {}
    for start in edges:
        if start not in done:
            _walk(start, edges, done, cycles)
        if len(cycles) >= _ENOUGH_CYCLES:
            break
    return tuple(cycles.values())


def _walk(
    start: Name,
    edges: Mapping[Name, Sequence[Name]],
    done: set[Name],
    cycles: dict[frozenset[Name], tuple[Name, ...]],
) -> None:
    path: dict[Name, int] = {start: 0}
    trail = [start]
    ahead = [iter(edges[start])]
    while ahead:
        target = next(ahead[-1], None)
        if target is None:
            ahead.pop()
            done.add(trail.pop())
            path.popitem()
        elif target in path:
            if len(cycles) < _ENOUGH_CYCLES:
                cycle = tuple(trail[path[target] :])
                cycles.setdefault(frozenset(cycle), cycle)
        elif target in edges and target not in done:
            path[target] = len(trail)
            trail.append(target)
            ahead.append(iter(edges[target]))


def reachable(edges: Mapping[Name, Sequence[Name]], roots: Iterable[Name]) -> frozenset[Name]:
    """Every node that can be reached from `roots`, the roots included."""
    found = {root for root in roots if root in edges}
    ahead = list(found)
    while ahead:
        for target in edges[ahead.pop()]:
            if target in edges and target not in found:
                found.add(target)
                ahead.append(target)
    return frozenset(found)
