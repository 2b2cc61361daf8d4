"""The folders that the editor's notes on downloads give to the files that a node names."""

from collections.abc import Sequence

from comfyfarm.workflow.file_node import ModelHint
from comfyfarm.workflow.folders import modern
from comfyfarm.workflow.names import base_name


class HintedFolders:
    """Those of one node, looked up by name of file: a node may have a thousand of both."""

    def __init__(self, hints: Sequence[ModelHint] = ()) -> None:
        """Of two hints with one name, the first counts."""
        self._by_name = {base_name(hint.name): hint.directory for hint in reversed(hints) if hint.directory}

    def of(self, text: str) -> str | None:
        """The key of today of the folder that a file of this name lies in; None when no hint says so."""
        found = self._by_name.get(base_name(text)) if self._by_name else None
        return None if found is None else modern(found)
