"""Nodes that only the editor knows: they never reach a server."""

from enum import Enum, auto
from typing import Final

from comfyfarm.workflow.ui.tree import UiNode


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


_TYPES: Final = {
    "Note": Virtual.NOTE,
    "MarkdownNote": Virtual.NOTE,
    "Reroute": Virtual.PASS,
    "PrimitiveNode": Virtual.PRIMITIVE,
    "SetNode": Virtual.SET,
    "GetNode": Virtual.GET,
    "easy setNode": Virtual.SET,
    "easy getNode": Virtual.GET,
    "Anything Everywhere": Virtual.EVERYWHERE,
    "Anything Everywhere?": Virtual.EVERYWHERE,
    "Anything Everywhere3": Virtual.EVERYWHERE,
    "Prompts Everywhere": Virtual.EVERYWHERE,
    "Reroute (rgthree)": Virtual.PASS,
    "Label (rgthree)": Virtual.NOTE,
    "Bookmark (rgthree)": Virtual.NOTE,
    "Fast Muter (rgthree)": Virtual.NOTE,
    "Fast Bypasser (rgthree)": Virtual.NOTE,
    "Fast Groups Muter (rgthree)": Virtual.NOTE,
    "Fast Groups Bypasser (rgthree)": Virtual.NOTE,
    "Fast Actions Button (rgthree)": Virtual.NOTE,
    "Mute / Bypass Repeater (rgthree)": Virtual.NOTE,
    "Mute / Bypass Relay (rgthree)": Virtual.NOTE,
    "Random Unmuter (rgthree)": Virtual.NOTE,
    "Node Collector (rgthree)": Virtual.NOTE,
    "Node Combiner (rgthree)": Virtual.NOTE,
}
"""Of ComfyUI's own editor, and of the packs whose nodes real files hold without a Python side."""
_CORE: Final = frozenset({"Note", "MarkdownNote", "Reroute", "PrimitiveNode"})

_MAKES_LINKS: Final = frozenset({"Seed Everywhere"})
"""Runs, and yet has links that only the editor makes."""


def virtual_of(node: UiNode) -> Virtual | None:
    """What a node does that only the editor knows; None for a node that runs."""
    return _TYPES.get(node.type)


def is_from_pack(node: UiNode) -> bool:
    """Whether such a node needs a pack in the editor."""
    return node.type in _TYPES and node.type not in _CORE


def makes_links(node: UiNode) -> bool:
    """Whether the editor makes links from this node when it queues."""
    return node.type in _MAKES_LINKS or virtual_of(node) is Virtual.EVERYWHERE
