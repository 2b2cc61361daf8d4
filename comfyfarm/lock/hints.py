"""What a workflow file says of its models (`properties.models`): hashes, rarely; addresses, mostly.

It can be stale: it counts only for a value of the same name. A hash that contradicts the catalogue is an
error, an address is one more source, since whatever comes from it is verified.
"""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from comfyfarm.ids import NodeId
from comfyfarm.lock.catalogue import CatalogueEntry
from comfyfarm.lock.match import Need
from comfyfarm.lock.paths import is_safe
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.folders import modern
from comfyfarm.workflow.references.find import Unclassified

_WEB = re.compile(r"^https?://", re.IGNORECASE)
_SHA256 = re.compile(r"^[0-9a-f]{64}$")

SizeOf = Callable[[str], int | None]
"""Size in bytes of what lies at an address; None when it does not say."""


class Hint(NamedTuple):
    """One entry of `properties.models`, with the node that has it."""

    node: NodeId
    name: str
    """With `/` between folders."""
    folder: str | None
    sha256: str | None
    url: str | None
    """Of the web only: a workflow file must not name files of this machine."""


def hints_of(nodes: Iterable[FileNode]) -> tuple[Hint, ...]:
    """All of them, in the order of the nodes."""
    return tuple(
        Hint(
            node.id,
            model.name.replace("\\", "/"),
            modern(model.directory) if model.directory else None,
            model.sha256.lower() if model.sha256 and _SHA256.match(model.sha256.lower()) else None,
            model.url if model.url and _WEB.match(model.url) else None,
        )
        for node in nodes
        for model in node.models
    )


def hints_for(need: Need, hints: Iterable[Hint]) -> tuple[Hint, ...]:
    """Those that speak of this reference: by name, and by node or folder."""
    path = need.path or ""
    base = path.rpartition("/")[2]
    folder = None if isinstance(need, Unclassified) else need.folder
    return tuple(
        hint
        for hint in hints
        if hint.name in {path, base} and base and (hint.node == need.node or hint.folder in {None, folder})
    )


def entry_of(need: Need, hints: Iterable[Hint], size_of: SizeOf | None) -> CatalogueEntry | None:
    """An entry made of a hint that has a hash, when its address tells the size."""
    if isinstance(need, Unclassified) or need.folder is None or need.path is None or size_of is None:
        return None
    for hint in hints:
        if hint.sha256 is None or hint.url is None:
            continue
        size = size_of(hint.url) if is_safe(need.folder, need.path) else None
        if size is not None:
            return CatalogueEntry(
                folder=modern(need.folder), path=need.path, sha256=hint.sha256, size=size, sources=(hint.url,)
            )
    return None
