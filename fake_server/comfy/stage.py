"""What outlives a single prompt: the classes, the folders, the cache, the interrupt flag."""

import random
import string
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any

from fake_server.comfy.cache import IsChanged, ResultCache
from fake_server.comfy.conditions import Conditions
from fake_server.comfy.execute import Behaviour as NodeBehaviour
from fake_server.comfy.places import Places
from fake_server.comfy.schema import NodeClasses
from fake_server.comfy.server_log import ServerLog
from fake_server.comfy.shown_files import ShownFiles
from fake_server.comfy.sockets import Sockets

Restart = Callable[[float], Awaitable[None]]


class Stage:
    """What every run of a prompt works with."""

    def __init__(
        self,
        *,
        classes: NodeClasses,
        places: Places,
        sockets: Sockets,
        behaviours: Mapping[str, NodeBehaviour],
        asynchronous: Container[str],
        is_changed: Mapping[str, IsChanged],
        conditions: Conditions,
        shown_files: ShownFiles,
        cache: ResultCache,
    ) -> None:
        self.classes = classes
        self.places = places
        self.sockets = sockets
        self.behaviours = behaviours
        self.asynchronous = asynchronous
        self.is_changed = is_changed
        self.conditions = conditions
        self.shown_files = shown_files
        self.cache = cache
        self.log = ServerLog()
        self.interrupt = False
        self.exit: Callable[[], Awaitable[None]] = _nothing
        self.restart: Restart = _no_restart
        self._suffixes: dict[tuple[str, str], str] = {}

    def temp_suffix(self, node_id: str, class_type: str) -> str:
        """The five letters in the names of a preview node's files, the same for the node's lifetime."""
        letters = "".join(random.choices(string.ascii_lowercase, k=5))
        return self._suffixes.setdefault((node_id, class_type), letters)

    def keep_nodes(self, graph: Mapping[str, Mapping[str, Any]]) -> None:
        """Let go of nodes that this prompt does not have: they would be made anew."""
        kept = {(node_id, node["class_type"]) for node_id, node in graph.items()}
        self._suffixes = {key: letters for key, letters in self._suffixes.items() if key in kept}

    def forget(self) -> None:
        """Be as after a start."""
        self.cache.clear()
        self.log.clear()
        self.interrupt = False
        self._suffixes.clear()


async def _nothing() -> None:
    """There is no process to end."""


async def _no_restart(_down_s: float) -> None:
    """Likewise."""
