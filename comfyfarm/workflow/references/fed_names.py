"""Names of models that come to a loader over a link, from a node that knows nothing of models."""

from collections.abc import Iterable, Mapping

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.node import Link


def fed_folders(nodes: Iterable[FileNode], folders: FolderMap) -> Mapping[NodeId, str]:
    """The folder by node whose output is linked to the name of a loader."""
    found: dict[NodeId, str] = {}
    for node in nodes:
        if not folders.of(node.class_type).inputs:
            continue
        for name, value in node.inputs.items():
            if isinstance(value, Link):
                given = folders.input(node.class_type, name)
                if given is not None and given.folders:
                    found[value.node] = given.folders[0]
    return found
