"""Messages gone wrong: what the client is sent of a prompt's message, instead of that message.

Source: field reports of lost, doubled and foreign messages, and of `executed` taken for the end.
"""

import time
import uuid
from collections.abc import Callable
from typing import Any

from fake_server.comfy.behaviours import Acts, Behaviour

Message = tuple[str, dict[str, Any]]
_PICTURE = {"images": [{"filename": "intermediate.png", "subfolder": "", "type": "temp"}]}


class Distortion:
    """What one run does to its own messages, one after the other."""

    def __init__(self, acts: Acts | None = None, is_output: Callable[[str], bool] = bool) -> None:
        self._acts = acts or Acts()
        self._is_output = is_output
        self._held: Message | None = None
        self._foreign_id = str(uuid.uuid4())

    def mutes_after(self, kind: str, data: dict[str, Any]) -> bool:
        """Whether the client hears nothing more after this one."""
        running = kind == "progress" or (kind == "executing" and data["node"] is not None)
        return Behaviour.MUTE in self._acts and running

    def apply(self, kind: str, data: dict[str, Any]) -> list[Message]:
        """The messages to be sent for this one."""
        messages = [(kind, data)]
        if Behaviour.INTERMEDIATE in self._acts:
            messages = self._intermediate(kind, data)
        if Behaviour.FOREIGN in self._acts:
            messages = [each for message in messages for each in (*self._foreign(*message), message)]
        if Behaviour.REORDER in self._acts:
            messages = self._reordered(messages, is_last=kind == "executing" and data["node"] is None)
        if Behaviour.DUPLICATE in self._acts:
            messages = [each for message in messages for each in (message, message)]
        return messages

    def _intermediate(self, kind: str, data: dict[str, Any]) -> list[Message]:
        node = data.get("node")
        if node is None or (kind == "executed" and self._is_output(node)):
            return [] if kind == "executed" else [(kind, data)]
        if kind == "executing" and not self._is_output(node):
            return [(kind, data), ("executed", data | {"output": _PICTURE})]
        return [(kind, data)]

    def _foreign(self, kind: str, data: dict[str, Any]) -> list[Message]:
        copy = (kind, data | {"prompt_id": self._foreign_id})
        if kind != "execution_start":
            return [copy]
        # Somebody else's prompt from its start to two ends, before ours has begun.
        own = {"prompt_id": self._foreign_id}
        stamped = own | {"timestamp": int(time.time() * 1000)}
        error = {"node_id": "1", "node_type": "SaveImage", "executed": [], "exception_type": "RuntimeError"}
        error |= {"exception_message": "of another prompt\n", "traceback": []}
        return [
            copy,
            ("executed", own | {"node": "1", "display_node": "1", "output": _PICTURE}),
            ("execution_error", stamped | error | {"current_inputs": {}, "current_outputs": []}),
            ("execution_success", stamped),
            ("executing", own | {"node": None}),
        ]

    def _reordered(self, messages: list[Message], *, is_last: bool) -> list[Message]:
        sent: list[Message] = []
        for message in messages:
            if self._held is None:
                self._held = message
            else:
                sent += [message, self._held]
                self._held = None
        if is_last and self._held is not None:
            sent.append(self._held)
            self._held = None
        return sent
