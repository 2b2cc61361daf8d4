"""The server's own log: its last 300 entries, which `GET /internal/logs` gives as one text.

It holds what a person looks for after a failure. Source: [rec: logs_subscribe] of ComfyUI 0.27, and its
execution.py and main.py.
"""

from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from aiohttp import web

from fake_server.comfy.answers import json_answer

_ENTRIES = 300
_COLOURS = {"INFO": "32", "WARNING": "33", "ERROR": "31"}


class ServerLog:
    """What was logged since the start."""

    def __init__(self) -> None:
        self._entries: deque[str] = deque(maxlen=_ENTRIES)

    def say(self, level: str, text: str) -> None:
        """Log one entry."""
        colour = f"\033[{_COLOURS[level]}m"
        bold = "" if level == "INFO" else "\033[1m"
        when = datetime.now().isoformat()  # noqa: DTZ005 - the real one's is local time without a zone, too
        self._entries.append(f"{when} - {bold}{colour}[{level}]\033[0m {text}\n")

    def faults(self, node_errors: Mapping[str, Any]) -> None:
        """Log what is wrong with each node of a prompt."""
        for node_id, found in node_errors.items():
            self.say("ERROR", f"* {found['class_type']} {node_id}:")
            for error in found["errors"]:
                self.say("ERROR", f"  - {error['message']}: {error['details']}")
            self.say("ERROR", "Output will be ignored")

    def refused(self, error: Mapping[str, Any], node_errors: Mapping[str, Any]) -> None:
        """Log why nothing of a prompt can run."""
        self.faults(node_errors)
        self.say("WARNING", f"invalid prompt: {dict(error)}")

    def raised(self, message: str, kind: str, trace: list[str]) -> None:
        """Log a node's exception."""
        self.say("ERROR", f"!!! Exception during processing !!! {message}")
        self.say("ERROR", f"Traceback (most recent call last):\n{''.join(trace)}{kind}: {message}\n")

    def clear(self) -> None:
        """Be as after a start."""
        self._entries.clear()

    async def show(self, _request: web.Request) -> web.Response:
        """The route /internal/logs."""
        return json_answer("".join(self._entries))
