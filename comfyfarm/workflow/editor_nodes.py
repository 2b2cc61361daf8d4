"""Nodes that only the editor knows: what they do in it, and which pack draws them.

A server never gets them from the editor, which resolves them when it queues.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple


class Virtual(Enum):
    """What such a node does."""

    NOTE = auto()
    """Nothing that runs: notes, labels, switches of the editor."""
    PASS = auto()
    """What comes in at a place goes out at the same place."""
    PRIMITIVE = auto()
    """It types its value into the inputs that it is linked to."""
    SET = auto()
    """It gives a name to what comes in, and passes it on."""
    GET = auto()
    """It gives what has the name."""
    EVERYWHERE = auto()
    """It feeds inputs that nothing is linked to, when the editor queues."""


class EditorNode(NamedTuple):
    """One type of node."""

    does: Virtual
    pack: str | None = None
    """Address of the pack's repository; None for ComfyUI's own editor."""


PRIMITIVE: Final = "PrimitiveNode"
REROUTE: Final = "Reroute"

_KJ = "https://github.com/kijai/ComfyUI-KJNodes"
_EASY = "https://github.com/yolain/ComfyUI-Easy-Use"
_EVERYWHERE = "https://github.com/chrisgoringe/cg-use-everywhere"
_RGTHREE = "https://github.com/rgthree/rgthree-comfy"

_NODES: Final[Mapping[str, EditorNode]] = {
    "Note": EditorNode(Virtual.NOTE),
    "MarkdownNote": EditorNode(Virtual.NOTE),
    REROUTE: EditorNode(Virtual.PASS),
    PRIMITIVE: EditorNode(Virtual.PRIMITIVE),
    "SetNode": EditorNode(Virtual.SET, _KJ),
    "GetNode": EditorNode(Virtual.GET, _KJ),
    "easy setNode": EditorNode(Virtual.SET, _EASY),
    "easy getNode": EditorNode(Virtual.GET, _EASY),
    "Anything Everywhere": EditorNode(Virtual.EVERYWHERE, _EVERYWHERE),
    "Anything Everywhere?": EditorNode(Virtual.EVERYWHERE, _EVERYWHERE),
    "Anything Everywhere3": EditorNode(Virtual.EVERYWHERE, _EVERYWHERE),
    "Prompts Everywhere": EditorNode(Virtual.EVERYWHERE, _EVERYWHERE),
    "Reroute (rgthree)": EditorNode(Virtual.PASS, _RGTHREE),
    "Label (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Bookmark (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Fast Muter (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Fast Bypasser (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Fast Groups Muter (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Fast Groups Bypasser (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Fast Actions Button (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Mute / Bypass Repeater (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Mute / Bypass Relay (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Random Unmuter (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Node Collector (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
    "Node Combiner (rgthree)": EditorNode(Virtual.NOTE, _RGTHREE),
}
_MAKES_LINKS: Final = frozenset({"Seed Everywhere"})
"""Runs, and yet has links that only the editor makes."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_GROUP_PREFIXES: Final = ("workflow>", "workflow/")


def virtual_of(class_type: str) -> Virtual | None:
    """What a node of this type does in the editor; None for one that runs."""
    found = _NODES.get(class_type)
    return None if found is None else found.does


def editor_pack(class_type: str) -> str | None:
    """Address of the pack that draws a node of this type; None for ComfyUI's own, and for nodes that run."""
    found = _NODES.get(class_type)
    return None if found is None else found.pack


def is_editors_own(class_type: str) -> bool:
    """Whether ComfyUI's own editor draws it, without any pack. Some packs claim their names."""
    found = _NODES.get(class_type)
    return found is not None and found.pack is None


def is_never_run(class_type: str) -> bool:
    """Whether no server has the class: nodes that feed others everywhere have a Python side as well."""
    return virtual_of(class_type) not in (None, Virtual.EVERYWHERE)


def makes_links(class_type: str) -> bool:
    """Whether the editor makes links from such a node when it queues."""
    return class_type in _MAKES_LINKS or virtual_of(class_type) is Virtual.EVERYWHERE


def is_subgraph(class_type: str) -> bool:
    """Whether it is the id of a subgraph of the file rather than a class."""
    return _UUID.fullmatch(class_type) is not None


def group_name(class_type: str) -> str | None:
    """The name of the legacy group node that a class stands for; None when it stands for none."""
    return next((class_type[len(p) :] for p in _GROUP_PREFIXES if class_type.startswith(p)), None)


def is_template(class_type: str) -> bool:
    """Whether it names a subgraph or a group node of the file rather than a class."""
    return is_subgraph(class_type) or group_name(class_type) is not None
