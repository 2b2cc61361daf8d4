"""In which order the nodes of a prompt run, and which of them run at all.

Output nodes come first as soon as they can, then what one of them waits for, then what that waits for.
Source: the pick of ComfyUI 0.27's execution list, by observation of [rec: success_basic, partial_execution].
"""

from collections.abc import Callable, Container, Iterable
from typing import Any

from fake_server.comfy.inputs import is_link


class ExecutionList:
    """The nodes still to be run, with what each of them waits for."""

    def __init__(
        self, graph: dict[str, Any], *, is_output: Callable[[str], bool], cached: Container[str]
    ) -> None:
        self._graph = graph
        self._is_output = is_output
        self._cached = cached
        self._waits_for: dict[str, int] = {}
        self._blocks: dict[str, dict[str, None]] = {}

    def add(self, outputs: Iterable[str]) -> None:
        """Add output nodes with all their ancestors whose results are not cached."""
        for output in outputs:
            self._add(output)

    def pending(self) -> list[str]:
        """All nodes that will run, or have their cached output shown, in the order they were met."""
        return list(self._waits_for)

    def next(self) -> str | None:
        """The node to run now; None at the end."""
        ready = [node_id for node_id, count in self._waits_for.items() if count == 0]
        if not ready:
            return None
        for wanted in (self._is_output, self._blocks_output, self._blocks_blocker):
            for node_id in ready:
                if wanted(node_id):
                    return node_id
        return ready[0]

    def put_before(self, node_id: str, sources: Iterable[str]) -> None:
        """Let a node that has begun wait for these, and for all that they need."""
        for source in sources:
            self._add(source)
            if source in self._blocks and node_id not in self._blocks[source]:
                self._blocks[source][node_id] = None
                self._waits_for[node_id] += 1

    def block(self, node_id: str) -> None:
        """Let a node that has begun wait for something outside the graph."""
        self._waits_for[node_id] += 1

    def unblock(self, node_id: str) -> None:
        """What it waited for has come."""
        self._waits_for[node_id] -= 1

    def done(self, node_id: str) -> None:
        """Take a finished node off the list."""
        del self._waits_for[node_id]
        for blocked in self._blocks.pop(node_id):
            self._waits_for[blocked] -= 1

    def _blocks_output(self, node_id: str) -> bool:
        return any(self._is_output(blocked) for blocked in self._blocks[node_id])

    def _blocks_blocker(self, node_id: str) -> bool:
        return any(self._blocks_output(blocked) for blocked in self._blocks[node_id])

    def _add(self, output: str) -> None:
        stack, links = [output], []
        while stack:
            node_id = stack.pop()
            if node_id in self._waits_for:
                continue
            self._waits_for[node_id] = 0
            self._blocks[node_id] = {}
            for value in self._graph[node_id]["inputs"].values():
                if is_link(value):
                    if value[0] not in self._cached:
                        stack.append(value[0])
                    links.append((value[0], node_id))
        for source, target in links:
            if source in self._blocks and target not in self._blocks[source]:
                self._blocks[source][target] = None
                self._waits_for[target] += 1
