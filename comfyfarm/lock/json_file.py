"""JSON files that are no workflow, read as strictly, with their own words for what to do."""

from typing import Any

from comfyfarm.errors import CatalogueError
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.strict import strict_json

_OF_A_WORKFLOW = frozenset({"bad_json", "too_deep", "too_large"})
"""Flaws whose remedy speaks of exporting a workflow."""


def read_json(data: bytes, *, name: str, remedy: str) -> Any:
    """Parse a JSON document. `remedy`: what to do where the file is broken as a whole.

    Raises:
        CatalogueError: it is none; every flaw is named.
    """
    try:
        return strict_json(data, name=name)
    except Refused as exc:
        said = [
            found.model_copy(update={"remedy": remedy}) if found.code in _OF_A_WORKFLOW else found
            for found in exc.findings
        ]
        raise CatalogueError(str(Refused(name, said))) from exc
