"""A second copy of the pins, `pins.json`: they are a promise, and the index may be lost."""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.known import Pin, is_pin
from comfyfarm.cache.keeper.strange import open_regular

_log = logging.getLogger(__name__)

_NAME = "pins.json"


def write_copy(root: Path, pins: Mapping[str, tuple[Pin, ...]], *, disk: Disk) -> None:
    """Replace the copy, with the cache locked.

    Raises:
        OSError: the cache cannot be written; the older copy stays.
    """
    raw = {sha: [pin._asdict() for pin in many] for sha, many in sorted(pins.items())}
    new = root / f"{_NAME}.new"
    fd = disk.open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        disk.write_at(fd, json.dumps({"v": 1, "pins": raw}, indent=1).encode(), 0, new)
        disk.sync(fd, new)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(new)
        raise
    finally:
        os.close(fd)
    disk.rename(new, root / _NAME)
    disk.sync_folder(root)


def read_copy(root: Path) -> list[tuple[str, Pin]] | None:
    """What the copy holds: nothing where there is none, None where it is broken."""
    try:
        with os.fdopen(open_regular(root / _NAME), "rb") as file:
            raw = json.loads(file.read())
        found = [(str(sha), Pin(**one)) for sha, many in raw["pins"].items() for one in many]
        return found if all(is_pin(pin) for _, pin in found) else None
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        _log.debug("%s cannot be read: %s", root / _NAME, exc)
        return None


def put_aside(root: Path, *, disk: Disk) -> None:
    """Keep a broken copy under another name: as long as it lies there, anything may be pinned.

    Raises:
        OSError: the cache cannot be written.
    """
    disk.rename(root / _NAME, broken(root))


def broken(root: Path) -> Path:
    """Where a broken copy lies until a person removes it."""
    return root / f"{_NAME}.broken"
