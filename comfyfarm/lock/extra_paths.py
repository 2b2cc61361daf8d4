"""ComfyUI's `extra_model_paths.yaml`: more directories for models, in named sections.

Source: `load_extra_path_config` and `add_model_folder_path` in ComfyUI 0.25.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comfyfarm.errors import CatalogueError
from comfyfarm.lock.models_folder import Root
from comfyfarm.workflow.folders import modern

_NOT_MODELS = {"custom_nodes"}
_OWN = {"base_path", "is_default"}


def is_extra_paths(raw: Any) -> bool:
    """Whether a parsed document is such a file: named sections of texts, and no list of models."""
    if not isinstance(raw, Mapping) or not raw or isinstance(raw.get("models"), list):
        return False
    sections = [section for section in raw.values() if section is not None]
    return bool(sections) and all(
        isinstance(section, Mapping) and all(isinstance(item, str | bool) for item in section.values())
        for section in sections
    )


def roots_of_extra_paths(raw: Mapping[str, Any], *, file: Path) -> tuple[Root, ...]:
    """The directories that the file names, in the order in which ComfyUI would search them.

    `~` and `$VAR` are replaced in `base_path`, which is relative to the file. A directory that is not
    there is left out: ComfyUI leaves it out as well.

    Raises:
        CatalogueError: a value that is no text.
    """
    first: list[Root] = []
    last: list[Root] = []
    for name, section in raw.items():
        if section is None:
            continue
        for root in _roots(str(name), section, file):
            (first if section.get("is_default") else last).append(root)
    # Each default one is put before those that are there already.
    return tuple(dict.fromkeys(root for root in (*reversed(first), *last) if root.path.is_dir()))


def _roots(name: str, section: Mapping[str, Any], file: Path) -> Iterator[Root]:
    base = section.get("base_path")
    start = file.absolute().parent
    if base is not None:
        # ComfyUI expands it so: pathlib knows no $VAR.
        start = start / os.path.expandvars(os.path.expanduser(str(base)))  # noqa: PTH111
    for key, value in section.items():
        if key in _OWN or key in _NOT_MODELS:
            continue
        if not isinstance(value, str):
            raise CatalogueError(f"{file}: {name}.{key}: is no path; write one, or a block of lines")
        for line in value.split("\n"):
            if line:
                yield Root(modern(str(key)), Path(os.path.normpath(start / line)))
