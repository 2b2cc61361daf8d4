"""Files of a checkout that somebody else made: read only where they are plain files.

A FIFO would keep the reader waiting for ever, and a device may never come to an end.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path


def read_regular(path: Path, *, limit_bytes: int) -> bytes:
    """The first bytes of a plain file, or of one that a link leads to.

    Raises:
        OSError: there is none, it cannot be read, or it is something else than a plain file.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # opening a device may do something by itself
        raise OSError(None, "is no plain file", str(path))
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):  # it was exchanged in between
            raise OSError(None, "is no plain file", str(path))
        return file.read(limit_bytes)


def has_special(folder: Path) -> bool:
    """Whether a FIFO or a device lies somewhere in a folder, or a link in it leads to one."""
    ahead = [str(folder)]
    while ahead:
        with suppress(OSError), os.scandir(ahead.pop()) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    ahead.append(item.path)
                elif not item.is_file() and _is_special(Path(item.path)):
                    return True
    return False


def _is_special(path: Path) -> bool:
    return path.is_fifo() or path.is_char_device() or path.is_block_device()
