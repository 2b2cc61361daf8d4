"""How far each node of the running prompt is, and what a running node may tell the outside.

Source: facts of ComfyUI 0.27, section 4; [rec: success_basic, ws_feature_flags, progress_state_growth].
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from fake_server.comfy.execute import Interrupted
from fake_server.comfy.sockets import Sockets

_SLICE_S = 0.05


class ProgressBoard:
    """The states of the nodes that have started; every change is sent with all of them."""

    def __init__(
        self,
        prompt_id: str,
        sockets: Sockets,
        interrupted: Callable[[], bool],
        *,
        parents: Mapping[str, str],
    ) -> None:
        self._prompt_id = prompt_id
        self._sockets = sockets
        self._interrupted = interrupted
        self._parents = parents
        self._nodes: dict[str, dict[str, Any]] = {}

    def set(self, node_id: str, value: float, maximum: float, *, state: str) -> None:
        """Note and send a node's state: `running` or `finished`."""
        self._nodes[node_id] = {"value": value, "max": maximum, "state": state} | self._names(node_id)
        data = {"prompt_id": self._prompt_id, "nodes": dict(self._nodes)}
        self._sockets.send_own("progress_state", data, broadcast=True)

    def finish(self, node_id: str) -> None:
        """Note and send that a node is done."""
        maximum = self._nodes.get(node_id, {}).get("max", 1.0)
        self.set(node_id, maximum, maximum, state="finished")

    def reporter(self, node_id: str) -> "NodeReporter":
        """What a node gets to report with."""
        return NodeReporter(self, node_id)

    def step(self, node_id: str, value: int, maximum: int, preview: bytes | None) -> None:
        """Send one step of a node's progress; a preview with metadata goes before it, a bare one after.

        Raises:
            Interrupted: the prompt is to stop.
        """
        self.stop_if_interrupted()
        self.set(node_id, float(value), float(maximum), state="running")
        early = self._sockets.wants_metadata()
        if preview is not None and early:
            self._sockets.send_preview(preview, self._names(node_id))
        data = {"value": value, "max": maximum, "prompt_id": self._prompt_id, "node": node_id}
        self._sockets.send_own("progress", data, broadcast=True)
        if preview is not None and not early:
            self._sockets.send_preview(preview, self._names(node_id))

    def text(self, node_id: str, text: str) -> None:
        """Send a node's progress text."""
        self._sockets.send_text(node_id, text)

    def stop_if_interrupted(self) -> None:
        """Raise `Interrupted` when the prompt is to stop."""
        if self._interrupted():
            raise Interrupted

    def _names(self, node_id: str) -> dict[str, Any]:
        root = node_id
        while root in self._parents:
            root = self._parents[root]
        return {
            "node_id": node_id,
            "prompt_id": self._prompt_id,
            "display_node_id": root,
            "parent_node_id": self._parents.get(node_id),
            "real_node_id": root,
        }


class NodeReporter:
    """The running node's way to the outside."""

    def __init__(self, board: ProgressBoard, node_id: str) -> None:
        self._board = board
        self._node_id = node_id

    async def progress(self, value: int, maximum: int, *, preview: bytes | None = None) -> None:
        """Send a step of progress; raises `Interrupted`."""
        self._board.step(self._node_id, value, maximum, preview)
        await asyncio.sleep(0)

    async def progress_text(self, text: str) -> None:
        """Send the node's progress text."""
        self._board.text(self._node_id, text)

    async def wait(self, seconds: float) -> None:
        """Let time pass; raises `Interrupted` within 50 ms of an interrupt.

        On purpose unlike the real one, which can be stopped between nodes and at progress steps only.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _SLICE_S))
            self._board.stop_if_interrupted()

    def stop_if_interrupted(self) -> None:
        """Raise `Interrupted` when the prompt is to stop."""
        self._board.stop_if_interrupted()
