"""The id of a cache: random, made on first use, kept in a file of the cache folder.

It tells a host which of the peers' addresses is its own, whatever it is called from where.
"""

import contextlib
import fcntl
import os
import re
import secrets
from pathlib import Path

from comfyfarm.cache.disk import SYSTEM_DISK, Disk

_NAME = "peer-id"
_ID = re.compile(rb"[0-9a-f]{32}")
_LENGTH = 32


def cache_id(root: Path, *, disk: Disk = SYSTEM_DISK) -> str:
    """The id of the cache under `root`. Processes that ask at once get the same.

    Raises:
        OSError: there is none yet and the folder cannot be written.
    """
    path = root / _NAME
    with contextlib.suppress(FileNotFoundError):
        if _ID.fullmatch(found := path.read_bytes()):
            return found.decode()
    disk.make_folder(root)
    fd = disk.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        # Who dies while writing leaves no whole id; the lock, and with it the file, is then the next one's.
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        return _kept(fd, path, disk)
    finally:
        os.close(fd)


def _kept(fd: int, path: Path, disk: Disk) -> str:
    found = os.pread(fd, _LENGTH + 1, 0)
    if not _ID.fullmatch(found):
        found = secrets.token_hex(_LENGTH // 2).encode()
        disk.truncate(fd, 0, path)
        disk.write_at(fd, found, 0, path)
        disk.sync(fd, path)
    return found.decode()
