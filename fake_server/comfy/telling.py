"""What a run tells: its messages, in order, and what the history keeps of them.

Source: facts of ComfyUI 0.27, sections 4 and 6; [rec: success_basic, node_raises, subgraph_expansion].
"""

import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from fake_server.comfy.behaviours import Acts
from fake_server.comfy.execute import NodeRaised
from fake_server.comfy.inputs import is_link
from fake_server.comfy.stage import Stage

_TIPS = (
    "This error means you ran out of memory on your GPU.\n\nTIPS: If the workflow worked before you might "
    "have accidentally set the batch_size to a large number."
)
_MEMORY_TYPES = frozenset({"torch.OutOfMemoryError", "torch.AcceleratorError"})


class Ending(BaseModel):
    """What the history keeps of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: str
    """`success`, `error` or `interrupted`."""
    outputs: dict[str, Any]
    meta: dict[str, Any]
    messages: list[Any]
    is_stale: bool = False
    """The real server's flag was not set: an error stands in the history as a success."""

    def status(self) -> dict[str, Any]:
        """The entry's `status`."""
        good = self.end == "success" or self.is_stale
        return {"status_str": "success" if good else "error", "completed": good, "messages": self.messages}


class Telling:
    """The messages and the record of one run."""

    def __init__(
        self, stage: Stage, prompt_id: str, graph: Mapping[str, Any], *, acts: Acts, parents: dict[str, str]
    ) -> None:
        self.executed: list[str] = []
        self._stage = stage
        self._sockets = stage.sockets
        self._prompt_id = prompt_id
        self._graph = graph
        self._acts = acts
        self._parents = parents
        self._messages: list[Any] = []
        self._outputs: dict[str, Any] = {}
        self._meta: dict[str, Any] = {}

    def ending(self, end: str, *, is_stale: bool = False) -> Ending:
        """The record, as the history keeps it."""
        return Ending(
            end=end, outputs=self._outputs, meta=self._meta, messages=self._messages, is_stale=is_stale
        )

    def message(self, kind: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        """Send one of the messages that the history keeps too."""
        full = data | {"prompt_id": self._prompt_id, "timestamp": int(time.time() * 1000)}
        self._messages.append([kind, full])
        self._sockets.send_own(kind, full, broadcast=broadcast)

    def executing(self, node_id: str) -> None:
        """Tell that a node begins."""
        if self._sockets.client_id is not None:
            self._sockets.last_node_id = node_id
        self._sockets.send_own("executing", self._shown(node_id))

    def output(self, node_id: str, ui: dict[str, Any], *, by: str | None = None) -> None:
        """Keep and tell what an output node shows; `by`: the node whose cached result it is."""
        ui = self._stage.shown_files.show(ui, self._acts)
        self._outputs[node_id] = ui
        made_by = by or node_id
        self._meta[node_id] = {
            "node_id": made_by,
            "display_node": self._root(made_by),
            "parent_node": self._parents.get(made_by),
            "real_node_id": self._root(made_by),
        }
        self._sockets.send_own("executed", self._shown(node_id) | {"output": ui})

    def no_output(self, node_id: str) -> None:
        """Tell that a cached node is done, which shows nothing."""
        self._sockets.send_own("executed", self._shown(node_id) | {"output": None})

    def interrupted(self, node_id: str) -> None:
        """Tell that the run ends here, because it was told to."""
        self.message("execution_interrupted", self._where(node_id), broadcast=True)

    def failed(self, node_id: str, exc: NodeRaised) -> None:
        """Tell that the run ends here, with the node's exception."""
        inputs = self._graph[node_id]["inputs"]
        details: dict[str, Any] = {
            "exception_message": f"{exc.message}\n{tips(exc)}",
            "exception_type": exc.kind,
            "traceback": list(exc.trace) or ['  File "fake_server/comfy/run.py", in execute\n'],
            "current_inputs": {name: [_shown_input(value)] for name, value in inputs.items()},
            "current_outputs": self._known(),
        }
        self._stage.log.raised(exc.message, exc.kind, details["traceback"])
        self.message("execution_error", self._where(node_id) | details)

    def cycle(self, node_id: str) -> None:
        """Tell that the nodes which are left wait for each other."""
        details = _bare("Dependency cycle detected", "graph.DependencyCycleError")
        self.message("execution_error", self._where(node_id) | details | {"current_outputs": self._known()})

    def blocked(self, node_id: str, text: str) -> None:
        """Tell that a node got no value; the run goes on, and the history does not keep it."""
        details = _bare(f"Execution Blocked: {text}", "ExecutionBlocked") | {"current_outputs": []}
        where = self._where(node_id) | {"prompt_id": self._prompt_id}
        self._sockets.send_own("execution_error", where | details)

    def _known(self) -> list[str]:
        inner = self._parents.keys() - set(self.executed)
        return sorted(self._graph.keys() - inner)

    def _root(self, node_id: str) -> str:
        while node_id in self._parents:
            node_id = self._parents[node_id]
        return node_id

    def _shown(self, node_id: str) -> dict[str, Any]:
        return {"node": node_id, "display_node": self._root(node_id), "prompt_id": self._prompt_id}

    def _where(self, node_id: str) -> dict[str, Any]:
        real = self._root(node_id)
        class_type = self._graph[real]["class_type"]
        return {"node_id": real, "node_type": class_type, "executed": list(self.executed)}


def tips(exc: NodeRaised) -> str:
    """What the real server adds to an out-of-memory message; empty for all others, whatever they say."""
    return _TIPS if exc.kind in _MEMORY_TYPES and "out of memory" in exc.message else ""


def _bare(message: str, kind: str) -> dict[str, Any]:
    return {"exception_message": message, "exception_type": kind, "traceback": [], "current_inputs": []}


def _shown_input(value: Any) -> Any:
    if is_link(value):
        return f"value of node {value[0]}"
    return value if isinstance(value, str | int | float | bool | None) else str(value)
