"""A second copy of the pins, `pins.json`: they are a promise, and the index may be lost."""

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.known import Pin

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


def read_copy(root: Path) -> list[tuple[str, Pin]]:
    """What the copy holds; nothing where there is none, or it is broken too."""
    try:
        raw = json.loads((root / _NAME).read_bytes())
        return [(str(sha), Pin(**one)) for sha, many in raw["pins"].items() for one in many]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        _log.warning("%s cannot be read: %s", root / _NAME, exc)
        return []
