"""Node classes beyond the shipped schema, for tests and for workflows with custom nodes."""

from collections.abc import Container, Mapping
from typing import Any

from fake_server.comfy.cache import IsChanged
from fake_server.comfy.checking import CustomCheck
from fake_server.comfy.execute import Behaviour


class ExtraNodes:
    """A small node pack: classes as /object_info gives them, with what they do and how they validate.

    Args:
        classes: what /object_info tells of them.
        behaviours: what a node does; also for classes of the shipped schema.
        checks: their own validation.
        asynchronous: classes that are awaited while other nodes run.
        is_changed: their own say in whether a cached result still holds.
    """

    def __init__(
        self,
        *,
        classes: Mapping[str, dict[str, Any]],
        behaviours: Mapping[str, Behaviour] | None = None,
        checks: Mapping[str, CustomCheck] | None = None,
        asynchronous: Container[str] = (),
        is_changed: Mapping[str, IsChanged] | None = None,
    ) -> None:
        self.classes = dict(classes)
        self.behaviours = dict(behaviours or {})
        self.checks = dict(checks or {})
        self.asynchronous = asynchronous
        self.is_changed = dict(is_changed or {})
