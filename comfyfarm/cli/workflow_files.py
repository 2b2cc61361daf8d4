"""The workflow files that a command was given: opened by name, folders looked through."""

from pathlib import Path

from comfyfarm.addresses import is_address, read_bytes
from comfyfarm.errors import UsageError
from comfyfarm.workflow.carriers import SUFFIXES

LIMIT_BYTES = 1 << 30
"""A video may be so large; how much JSON is too much, the reader says itself."""


def read_file(name: str) -> bytes:
    """The bytes of a workflow file.

    Raises:
        InputError: there is no such file, it cannot be read, or it is larger than `LIMIT_BYTES`.
        TryLater: the address did not answer.
    """
    return read_bytes(name, limit_bytes=LIMIT_BYTES)


def listed(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, with folders replaced by the workflow and media files in them, in order of their paths.

    Raises:
        UsageError: there is nothing in a folder, so that another may be meant.
    """
    return tuple(found for name in names for found in _inside(name))


def _inside(name: str) -> list[str]:
    if is_address(name) or not Path(name).is_dir():
        return [name]
    found = sorted(str(path) for path in Path(name).rglob("*") if _may_hold(path))
    if not found:
        raise UsageError(f"{name}: no .json file in it, and no picture, video or sound; name another folder")
    return found


def is_media(name: str) -> bool:
    """Whether the name is that of a picture, video or sound, which may hold a workflow or not."""
    return Path(name).suffix.lower() in SUFFIXES


def _may_hold(path: Path) -> bool:
    return (path.suffix.lower() == ".json" or is_media(path.name)) and path.is_file()
