"""Views of locks whose files have all left."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from comfyfarm.cache.disk import Disk


def drop_empty_views(root: Path, emptied: Iterable[Path], *, disk: Disk) -> None:
    """Remove the views that have no file any more, with what shows them to ComfyUI; with the cache locked.

    What cannot be removed stays: it is in nobody's way.

    Args:
        root: of the cache.
        emptied: folders out of which links went; only views among those above them are looked at.
        disk: on which they lie.
    """
    views = root / "views"
    inside = [folder.relative_to(views).parts for folder in emptied if folder.is_relative_to(views)]
    for name in sorted({parts[0] for parts in inside if parts}):
        if not any(names for _, _, names in os.walk(views / name)):
            with contextlib.suppress(OSError):
                disk.unlink(views / f"{name}.yaml")
                for folder, _, _ in os.walk(views / name, topdown=False):
                    disk.remove_folder(Path(folder))
