"""The folder of a file that a UI file gives an unknown loader without a name, by what the class is called."""

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.model_files import is_model_file
from comfyfarm.workflow.node import Value
from comfyfarm.workflow.references.loader_names import folder_by_class
from comfyfarm.workflow.references.named_values import NamedValues
from comfyfarm.workflow.schema import NodeSchema


class OnlyFiles:
    """Those folders, each node looked at once: a node may have a thousand values."""

    def __init__(self, schema: NodeSchema) -> None:
        self._schema = schema
        self._last: tuple[NodeId, str | None] | None = None

    def folder(self, node: FileNode) -> str | None:
        """The folder of the node's one model file; None when it has several, or its class is known."""
        if self._last is None or self._last[0] != node.id:
            self._last = node.id, self._look_up(node)
        return self._last[1]

    def _look_up(self, node: FileNode) -> str | None:
        folders = self._schema.folders
        if self._schema.knows(node.class_type) or folders.of(node.class_type).inputs:
            return None
        files = [value for _, value in NamedValues(node, folders) if _names_file(value)]
        return folder_by_class(node.class_type) if len(files) == 1 else None


def _names_file(value: Value) -> bool:
    return isinstance(value, str) and "\n" not in value and is_model_file(value)
