"""Files that lie beside workflows and are none: those that comfyfarm itself writes, told apart by content."""

from collections.abc import Mapping
from typing import Any

from comfyfarm.workflow.bare_classes import PLACES
from comfyfarm.workflow.findings import Finding, error

_PROVENANCE = frozenset({"job", "batch", "workflow_sha256", "attempts", "timings", "files"})
_CLASS = frozenset({"input", "output", "python_module"})


def other_file(tree: Any) -> Finding | None:
    """What the document is, as the error `not_a_workflow`; None when it is nothing that comfyfarm knows."""
    if not isinstance(tree, Mapping):
        return None
    if _is_schema(tree):
        return _not("a saved node schema (what /object_info answers)", "pass it as --schema")
    if tree.keys() >= _PROVENANCE:
        return _not("the record of a rendered job (provenance.json)", "name the workflow that was rendered")
    if isinstance(tree.get("models"), list):
        if "version" in tree:
            return _not("a lock", "name the workflow that it was made for")
        return _not("a catalogue of models", "pass it to `comfyfarm lock` as --catalog")
    return None


def _is_schema(tree: Mapping[str, Any]) -> bool:
    classes = [value for key, value in tree.items() if key != PLACES]
    return bool(classes) and all(isinstance(one, Mapping) and one.keys() >= _CLASS for one in classes)


def _not(kind: str, remedy: str) -> Finding:
    return error("not_a_workflow", f"is {kind}, no workflow", remedy)
