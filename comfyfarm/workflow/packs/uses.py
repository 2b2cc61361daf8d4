"""The classes of a file that come from node packs, each once, with all that its nodes say of the pack."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from comfyfarm.ids import NodeId
from comfyfarm.workflow.editor_nodes import is_editors_own, is_never_run, is_template
from comfyfarm.workflow.file_node import CORE_ID, FileNode, PackHint
from comfyfarm.workflow.packs.index import CORE_REPOS, PackIndex
from comfyfarm.workflow.packs.urls import repo_key
from comfyfarm.workflow.schema import CUSTOM, NodeSchema

_CORE_MODULES = {"custom_nodes.websocket_image_save", "custom_nodes.example_node"}
_CORE_CLASSES = {"SaveImageWebsocket"}


@dataclass(frozen=True, slots=True)
class Use:
    """A class of a file, and where."""

    class_type: str
    node: NodeId
    """The first node of the class; an active one when there is any."""
    active: bool
    """Whether any of them runs."""
    hints: tuple[PackHint, ...] = ()
    """What the nodes say of their pack, in the file's order."""

    @property
    def is_run(self) -> bool:
        """Whether a server needs the class."""
        return self.active and not is_never_run(self.class_type)

    @property
    def toml_key(self) -> str:
        """The class as a key of comfyfarm.toml."""
        text = self.class_type[:80].replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'


def uses_of(
    nodes: Iterable[FileNode], schema: NodeSchema, index: PackIndex, *, run: Collection[str] | None = None
) -> tuple[Use, ...]:
    """The classes that come from packs, in the file's order. ComfyUI's own are left out first.

    `run`: the classes of the graph that a server gets; None for all that are active.
    """
    found: dict[str, Use] = {}
    theirs: dict[str, list[PackHint]] = {}
    core: dict[str, bool] = {}
    for node in nodes:
        name = node.class_type
        if name not in core:
            core[name] = _is_core(name, schema, index)
        if core[name] or _is_core_hint(node.pack):
            continue
        known = found.get(name)
        active = node.active and (run is None or name in run)
        if known is None or (active and not known.active):
            found[name] = Use(name, node.id, active)
        if node.pack is not None:
            theirs.setdefault(name, []).append(node.pack)
    order = {
        name: Use(use.class_type, use.node, use.active, tuple(theirs.get(name, ())))
        for name, use in found.items()
    }
    return tuple(order.values())


def _is_core(class_type: str, schema: NodeSchema, index: PackIndex) -> bool:
    if is_editors_own(class_type) or class_type in _CORE_CLASSES or is_template(class_type):
        return True
    if schema.knows(class_type):
        module = schema.module(class_type)
        return not module.startswith(CUSTOM) or module in _CORE_MODULES
    return any(repo_key(url) in CORE_REPOS for url in index.classes.get(class_type, ()))


def _is_core_hint(hint: PackHint | None) -> bool:
    return hint is not None and (hint.cnr_id or "").strip().lower() == CORE_ID
