"""Folder names and relative paths that are safe to make below any root."""

import re
from typing import Annotated

from pydantic import AfterValidator

_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]*")
_UNSAFE = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|]')


def safe_folder(folder: str) -> str:
    """A models-folder key, such as `checkpoints` or `AnimateDiff`, as it is.

    Raises:
        ValueError: it is no plain name.
    """
    if not _FOLDER.fullmatch(folder) or folder[-1] in ". ":
        raise ValueError(f"{folder!r} is no folder name: use letters, digits, _ . + -")
    return folder


def safe_path(path: str) -> str:
    """A relative path with `/` between folders, as it is.

    Raises:
        ValueError: it is absolute, leads out of its folder, or cannot be made on every system.
    """
    parts = path.split("/")
    if _UNSAFE.search(path):
        raise ValueError(f"{path!r} has a character that no path may have; separate folders by /")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{path!r} is no relative path inside its folder")
    return path


def is_safe(folder: str, path: str) -> bool:
    """Whether a lock can hold a file of this name."""
    try:
        return bool(safe_folder(folder) and safe_path(path))
    except ValueError:
        return False


SafeFolder = Annotated[str, AfterValidator(safe_folder)]
SafePath = Annotated[str, AfterValidator(safe_path)]
