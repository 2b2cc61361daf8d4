"""One prompt from start to end: which node runs when, and what comes of it.

A node may expand into others, hand on no value, or be awaited while others run.
Source: facts of ComfyUI 0.27, section 4; [rec: success_basic, subgraph_expansion, async_nodes].
"""

import asyncio
import json
from typing import Any

from fake_server.comfy import faults, savers
from fake_server.comfy.behaviours import UNCACHED, Acts, Behaviour
from fake_server.comfy.cache import digests_of
from fake_server.comfy.distortion import Distortion
from fake_server.comfy.execute import (
    Blocker,
    Call,
    Expansion,
    Interrupted,
    NodeOutcome,
    NodeRaised,
    Result,
    Value,
    values_of,
)
from fake_server.comfy.inputs import is_link
from fake_server.comfy.order import ExecutionList
from fake_server.comfy.progress import ProgressBoard
from fake_server.comfy.prompts import Entry
from fake_server.comfy.stage import Stage
from fake_server.comfy.telling import Ending, Telling
from fake_server.comfy.timing import Timing, spread, steps


class PromptRun:
    """One run of one prompt."""

    def __init__(self, stage: Stage, entry: Entry, *, acts: Acts, seconds: float) -> None:
        _, self.prompt_id, graph, self._extra, self._wanted = entry
        self._stage = stage
        self._sockets = stage.sockets
        # The executed graph is a copy: it gains `is_changed`, the history keeps what was submitted.
        self._graph: dict[str, Any] = json.loads(json.dumps(graph))
        self._parents: dict[str, str] = {}
        self._board = ProgressBoard(self.prompt_id, stage.sockets, self._interrupted, parents=self._parents)
        self._telling = Telling(stage, self.prompt_id, self._graph, acts=acts, parents=self._parents)
        self._acts = acts
        self._seconds = seconds
        self._digests: dict[str, str] = {}
        self._timing = Timing()
        self._expanded: dict[str, Expansion] = {}
        self._tasks: dict[str, asyncio.Task[Result | Expansion]] = {}

    async def execute(self) -> Ending:
        """Run the prompt to its end.

        Raises:
            KeyError: the graph holds a node without inputs; the worker is to die of it.
        """
        self._sockets.begin(self._extra.get("client_id"), Distortion(self._acts, self._is_output))
        self._stage.interrupt = False
        self._telling.message("execution_start", {})
        if self._acts.any_of(UNCACHED) is not None:
            self._stage.cache.clear()
        self._digest()
        self._stage.cache.begin(self._digests)
        self._stage.keep_nodes(self._graph)
        cached = [node_id for node_id in self._graph if self._stage.cache.get(self._digests[node_id])]
        self._telling.message("execution_cached", {"nodes": cached})
        self._nodes = ExecutionList(self._graph, is_output=self._is_output, cached=frozenset(cached))
        self._nodes.add(self._wanted)
        pending = [node_id for node_id in self._nodes.pending() if node_id not in cached]
        self._timing = spread(self._seconds, pending, self._graph, is_output=self._is_output)
        try:
            return await self._run_nodes()
        finally:
            self._sockets.last_node_id = None
            for task in self._tasks.values():
                task.cancel()

    async def _run_nodes(self) -> Ending:
        while self._nodes.pending():
            node_id = self._nodes.next()
            if node_id is None:
                if not self._tasks:
                    self._telling.cycle(self._nodes.pending()[-1])
                    return self._telling.ending("error", is_stale=True)
                await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)
                continue
            try:
                is_done = await self._run_node(node_id)
            except Interrupted:
                self._telling.interrupted(node_id)
                return self._telling.ending("interrupted")
            except NodeRaised as exc:
                self._telling.failed(node_id, exc)
                return self._telling.ending("error")
            if is_done:
                self._nodes.done(node_id)
            await asyncio.sleep(0)
        self._telling.message("execution_success", {})
        return self._telling.ending("success")

    async def _run_node(self, node_id: str) -> bool:
        """Run a node, or go on with it; whether it is done."""
        if node_id in self._expanded:
            values = tuple(self._linked(link) for link in self._expanded.pop(node_id).results)
            return self._finish(node_id, Result(values=values))
        if node_id in self._tasks:
            return self._take(node_id, self._tasks.pop(node_id).result())
        known = self._stage.cache.get(self._digests[node_id])
        if known is not None:
            self._show_cached(node_id, known)
            return True
        self._board.set(node_id, 0.0, 1.0, state="running")
        self._telling.executing(node_id)
        if self._interrupted():
            raise Interrupted
        call = self._call(node_id)
        if call.class_type in self._stage.asynchronous:
            self._await_later(call)
            return False
        return self._take(node_id, await self._compute(call))

    def _await_later(self, call: Call) -> None:
        self._nodes.block(call.node_id)
        task = self._tasks[call.node_id] = asyncio.create_task(self._compute(call))
        task.add_done_callback(lambda _: self._nodes.unblock(call.node_id))

    def _take(self, node_id: str, outcome: Result | Expansion) -> bool:
        if isinstance(outcome, Expansion):
            self._expand(node_id, outcome)
            return False
        return self._finish(node_id, outcome)

    def _expand(self, node_id: str, expansion: Expansion) -> None:
        self._graph.update(expansion.nodes)
        self._parents.update(dict.fromkeys(expansion.nodes, node_id))
        self._digest()
        self._expanded[node_id] = expansion
        self._nodes.put_before(node_id, [link[0] for link in expansion.results if is_link(link)])

    def _finish(self, node_id: str, result: Result) -> bool:
        result = result.model_copy(update={"shown_by": node_id})
        self._stage.cache.put(self._digests[node_id], result)
        self._telling.executed.append(node_id)
        if result.ui is not None:
            self._telling.output(node_id, result.ui)
        self._board.finish(node_id)
        return True

    async def _compute(self, call: Call) -> Result | Expansion:
        blocked = next((each.blocked for each in call.values() if each.blocked is not None), None)
        slots = len(self._stage.classes.outputs(call.class_type))
        if blocked is not None:
            if blocked:
                self._telling.blocked(call.node_id, blocked)
            return Result(values=(Value(digest=call.digest, blocked=blocked),) * slots)
        if call.node_id == self._timing.target:
            await faults.strike(self._acts, call, self._stage)
        try:
            outcome = await self._act(call)
            if isinstance(outcome, Expansion):
                return outcome
            if isinstance(outcome, Blocker):
                return Result(values=(Value(digest=call.digest, blocked=outcome.message or ""),) * slots)
            return Result(values=values_of(call, slots), ui=outcome or None)
        except (NodeRaised, Interrupted):
            raise
        except Exception as exc:
            # Whatever a node raises is its error, as there.
            raise NodeRaised(type(exc).__name__, str(exc)) from exc

    async def _act(self, call: Call) -> NodeOutcome:
        behaviour = self._stage.behaviours.get(call.class_type)
        if behaviour is not None:
            return await behaviour(call)
        await self._let_time_pass(call)
        return savers.save(call) if self._is_output(call.node_id) else None

    async def _let_time_pass(self, call: Call) -> None:
        seconds, count = self._timing.time_s.get(call.node_id, 0.0), steps(call.class_type, call.inputs)
        if not count:
            await call.reporter.wait(seconds)
        for step in range(count):
            await call.reporter.wait(seconds / count)
            await call.reporter.progress(step + 1, count)

    def _digest(self) -> None:
        self._digests.update(digests_of(self._graph, self._stage.places, self._stage.is_changed))

    def _call(self, node_id: str) -> Call:
        class_type = self._graph[node_id]["class_type"]
        inputs = {name: self._linked(value) for name, value in self._graph[node_id]["inputs"].items()}
        pnginfo = self._extra.get("extra_pnginfo") or {}
        texts = {"prompt": json.dumps(self._graph)} | {
            key: json.dumps(value) for key, value in pnginfo.items()
        }
        return Call(
            node_id=node_id,
            class_type=class_type,
            inputs=inputs,
            digest=self._digests[node_id],
            places=self._stage.places,
            texts=texts,
            temp_suffix=self._stage.temp_suffix(node_id, class_type),
            reporter=self._board.reporter(node_id),
        )

    def _interrupted(self) -> bool:
        deaf = Behaviour.DEAF in self._acts or Behaviour.DEAF in self._stage.conditions
        return self._stage.interrupt and not deaf

    def _linked(self, value: Any) -> Any:
        if not is_link(value):
            return value
        result = self._stage.cache.get(self._digests[value[0]])
        values = result.values if result is not None else ()
        slot = int(value[1])
        return values[slot] if -len(values) <= slot < len(values) else Value(digest=self._digests[value[0]])

    def _is_output(self, node_id: str) -> bool:
        return self._stage.classes.is_output(self._graph[node_id]["class_type"])

    def _show_cached(self, node_id: str, known: Result) -> None:
        if self._sockets.client_id is not None:
            if known.ui is None:
                self._telling.no_output(node_id)
            else:
                self._telling.output(node_id, known.ui, by=known.shown_by)
        self._board.finish(node_id)
