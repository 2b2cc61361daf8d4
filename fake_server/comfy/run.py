"""One prompt from start to end: the nodes in order, and the messages that the real server sends of it.

Source: facts of ComfyUI 0.27, section 4; [rec: success_basic, node_raises, interrupt_with_prompt_id].
"""

import asyncio
import json
import random
import string
import time
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from fake_server.comfy import faults, savers
from fake_server.comfy.cache import ResultCache, digests_of
from fake_server.comfy.execute import Behaviour as NodeBehaviour
from fake_server.comfy.execute import Call, Interrupted, NodeRaised, Result, Value, values_of
from fake_server.comfy.inputs import is_link
from fake_server.comfy.order import ExecutionList
from fake_server.comfy.places import Places
from fake_server.comfy.progress import ProgressBoard
from fake_server.comfy.prompts import Entry
from fake_server.comfy.schema import NodeClasses
from fake_server.comfy.script import Behaviour
from fake_server.comfy.sockets import Sockets

_SAMPLER_STEPS = 20
_MAX_STEPS = 200


class Stage:
    """What outlives a single prompt: the classes, the folders, the cache, the interrupt flag."""

    def __init__(
        self,
        *,
        classes: NodeClasses,
        places: Places,
        sockets: Sockets,
        behaviours: Mapping[str, NodeBehaviour],
    ) -> None:
        self.classes = classes
        self.places = places
        self.sockets = sockets
        self.behaviours = behaviours
        self.cache = ResultCache()
        self.interrupt = False
        self._suffixes: dict[tuple[str, str], str] = {}

    def temp_suffix(self, node_id: str, class_type: str) -> str:
        """The five letters in the names of a preview node's files, the same for the node's lifetime."""
        letters = "".join(random.choices(string.ascii_lowercase, k=5))
        return self._suffixes.setdefault((node_id, class_type), letters)


class Ending(BaseModel):
    """What the history keeps of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: str
    """`success`, `error` or `interrupted`."""
    outputs: dict[str, Any]
    meta: dict[str, Any]
    messages: list[Any]

    def status(self) -> dict[str, Any]:
        """The entry's `status`."""
        good = self.end == "success"
        return {"status_str": "success" if good else "error", "completed": good, "messages": self.messages}


class PromptRun:
    """One run of one prompt."""

    def __init__(self, stage: Stage, entry: Entry, *, behaviour: Behaviour, seconds: float) -> None:
        _, self.prompt_id, graph, self._extra, self._wanted = entry
        self._stage = stage
        self._sockets = stage.sockets
        # The executed graph is a copy: it gains `is_changed`, the history keeps what was submitted.
        self._graph: dict[str, Any] = json.loads(json.dumps(graph))
        self._board = ProgressBoard(self.prompt_id, stage.sockets, lambda: stage.interrupt)
        self._behaviour = behaviour
        self._seconds = seconds
        self._messages: list[Any] = []
        self._outputs: dict[str, Any] = {}
        self._meta: dict[str, Any] = {}
        self._executed: list[str] = []
        self._target = ""
        self._time_s: dict[str, float] = {}

    async def execute(self) -> Ending:
        """Run the prompt to its end.

        Raises:
            KeyError: the graph holds a node without inputs; the worker is to die of it.
        """
        self._sockets.client_id = self._extra.get("client_id")
        self._stage.interrupt = False
        self._message("execution_start", {})
        if self._behaviour in faults.UNCACHED:
            self._stage.cache.clear()
        digests = digests_of(self._graph, self._stage.places)
        self._stage.cache.keep_only(digests)
        cached = [node_id for node_id in self._graph if self._stage.cache.get(digests[node_id])]
        self._message("execution_cached", {"nodes": cached})
        nodes = ExecutionList(self._graph, is_output=self._is_output, cached=frozenset(cached))
        nodes.add(self._wanted)
        self._plan([node_id for node_id in nodes.pending() if node_id not in cached])
        end = await self._run_nodes(nodes, digests)
        self._sockets.last_node_id = None
        return Ending(end=end, outputs=self._outputs, meta=self._meta, messages=self._messages)

    async def _run_nodes(self, nodes: ExecutionList, digests: Mapping[str, str]) -> str:
        results: dict[str, Result] = {}
        while (node_id := nodes.next()) is not None:
            try:
                results[node_id] = await self._run_node(node_id, digests)
            except Interrupted:
                self._message("execution_interrupted", self._where(node_id), broadcast=True)
                return "interrupted"
            except NodeRaised as exc:
                self._message("execution_error", self._where(node_id) | self._error(node_id, exc))
                return "error"
            nodes.done(node_id)
            await asyncio.sleep(0)
        self._message("execution_success", {})
        return "success"

    async def _run_node(self, node_id: str, digests: Mapping[str, str]) -> Result:
        digest, class_type = digests[node_id], self._graph[node_id]["class_type"]
        known = self._stage.cache.get(digest)
        if known is not None:
            self._show_cached(node_id, known)
            return known
        self._board.set(node_id, 0.0, 1.0, state="running")
        if self._sockets.client_id is not None:
            self._sockets.last_node_id = node_id
        self._sockets.send_own("executing", self._shown(node_id))
        if self._stage.interrupt:
            raise Interrupted
        call = self._call(node_id, class_type, digests)
        result = await self._compute(call)
        self._stage.cache.put(digest, result)
        self._executed.append(node_id)
        if result.ui is not None:
            self._note_output(node_id, result.ui)
            self._sockets.send_own("executed", self._shown(node_id) | {"output": result.ui})
        self._board.finish(node_id)
        return result

    async def _compute(self, call: Call) -> Result:
        if call.node_id == self._target:
            await faults.strike(self._behaviour, call, self._cut)
        behaviour = self._stage.behaviours.get(call.class_type)
        if behaviour is not None:
            ui = await behaviour(call)
        else:
            await self._let_time_pass(call)
            ui = savers.save(call) if self._is_output(call.node_id) else None
        slots = len(self._stage.classes.outputs(call.class_type))
        return Result(values=values_of(call, slots), ui=ui or None)

    async def _let_time_pass(self, call: Call) -> None:
        seconds, steps = self._time_s.get(call.node_id, 0.0), _steps(call.class_type, call.inputs)
        if not steps:
            await call.reporter.wait(seconds)
        for step in range(steps):
            await call.reporter.wait(seconds / steps)
            await call.reporter.progress(step + 1, steps)

    def _plan(self, pending: list[str]) -> None:
        weights = {
            node_id: _steps(node["class_type"], node["inputs"]) for node_id, node in self._nodes(pending)
        }
        samplers = [node_id for node_id in pending if weights[node_id]]
        busy = samplers or pending
        total = sum(weights[node_id] or 1 for node_id in busy)
        self._time_s = {node_id: self._seconds * (weights[node_id] or 1) / total for node_id in busy}
        outputs = [node_id for node_id in pending if self._is_output(node_id)]
        self._target = next(iter([*samplers, *outputs]), "")

    def _nodes(self, node_ids: list[str]) -> list[tuple[str, dict[str, Any]]]:
        return [(node_id, self._graph[node_id]) for node_id in node_ids]

    def _call(self, node_id: str, class_type: str, digests: Mapping[str, str]) -> Call:
        inputs = {name: self._value(value, digests) for name, value in self._graph[node_id]["inputs"].items()}
        pnginfo = self._extra.get("extra_pnginfo") or {}
        texts = {"prompt": json.dumps(self._graph)} | {
            key: json.dumps(value) for key, value in pnginfo.items()
        }
        return Call(
            node_id=node_id,
            class_type=class_type,
            inputs=inputs,
            digest=digests[node_id],
            places=self._stage.places,
            texts=texts,
            temp_suffix=self._stage.temp_suffix(node_id, class_type),
            reporter=self._board.reporter(node_id),
        )

    def _cut(self) -> None:
        self._sockets.cut(self._sockets.client_id)

    def _value(self, value: Any, digests: Mapping[str, str]) -> Any:
        if not is_link(value):
            return value
        result = self._stage.cache.get(digests[value[0]])
        values = result.values if result is not None else ()
        slot = int(value[1])
        return values[slot] if -len(values) <= slot < len(values) else Value(digest=digests[value[0]])

    def _is_output(self, node_id: str) -> bool:
        return self._stage.classes.is_output(self._graph[node_id]["class_type"])

    def _show_cached(self, node_id: str, known: Result) -> None:
        if self._sockets.client_id is not None:
            self._sockets.send_own("executed", self._shown(node_id) | {"output": known.ui})
            if known.ui is not None:
                self._note_output(node_id, known.ui)
        self._board.finish(node_id)

    def _note_output(self, node_id: str, ui: dict[str, Any]) -> None:
        self._outputs[node_id] = ui
        self._meta[node_id] = {
            "node_id": node_id,
            "display_node": node_id,
            "parent_node": None,
            "real_node_id": node_id,
        }

    def _shown(self, node_id: str) -> dict[str, Any]:
        return {"node": node_id, "display_node": node_id, "prompt_id": self.prompt_id}

    def _where(self, node_id: str) -> dict[str, Any]:
        class_type = self._graph[node_id]["class_type"]
        return {"node_id": node_id, "node_type": class_type, "executed": list(self._executed)}

    def _error(self, node_id: str, exc: NodeRaised) -> dict[str, Any]:
        inputs = self._graph[node_id]["inputs"]
        return {
            "exception_message": f"{exc.message}\n{faults.tips(exc)}",
            "exception_type": exc.kind,
            "traceback": list(exc.trace) or ['  File "fake_server/comfy/run.py", in execute\n'],
            "current_inputs": {name: [_shown_input(value)] for name, value in inputs.items()},
            "current_outputs": sorted(self._graph),
        }

    def _message(self, kind: str, data: dict[str, Any], *, broadcast: bool = False) -> None:
        full = data | {"prompt_id": self.prompt_id, "timestamp": int(time.time() * 1000)}
        self._messages.append([kind, full])
        self._sockets.send_own(kind, full, broadcast=broadcast)


def _steps(class_type: str, inputs: Mapping[str, Any]) -> int:
    bare = class_type.startswith("Sampler") and not class_type.startswith("SamplerCustom")
    if "Sampler" not in class_type or bare:
        return 0  # `SamplerEulerAncestral` and its like only describe one
    steps = inputs.get("steps", _SAMPLER_STEPS)
    if isinstance(steps, bool) or not isinstance(steps, int):
        steps = _SAMPLER_STEPS
    return max(1, min(steps, _MAX_STEPS))


def _shown_input(value: Any) -> Any:
    if is_link(value):
        return f"value of node {value[0]}"
    return value if isinstance(value, str | int | float | bool | None) else str(value)
