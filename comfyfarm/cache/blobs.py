"""The host's content-addressed store: a file lies under its SHA-256, whole and verified, or not at all.

Layout under the root: `sha256/<first 2>/<64 hex>`, `.partial/<sha>/` for what is on its way, `quarantine/`
for what turned out to be wrong, `views/<lock digest>/` for ComfyUI.
"""

import logging
import shutil
from pathlib import Path

from comfyfarm.cache.temporary import TemporaryFile, open_temporary, sweep

_log = logging.getLogger(__name__)

READ_ONLY = 0o444


def blob_key(sha256: str) -> str:
    """Where a blob lies, in cache and mirror alike, relative to the root."""
    return f"sha256/{sha256[:2]}/{sha256}"


class BlobStore:
    """The blobs under `root`. Any number of processes may use one root at once."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    def path(self, sha256: str) -> Path:
        """Where this blob lies, or would lie."""
        return self.root / blob_key(sha256)

    def size(self, sha256: str) -> int | None:
        """Its size in bytes; None when it is not here."""
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return None

    def has(self, sha256: str, *, size: int | None = None) -> bool:
        """Whether it is here (and has `size` bytes). The bytes are not read: they were when they came."""
        found = self.size(sha256)
        return found is not None and (size is None or found == size)

    def temporary(self, sha256: str) -> TemporaryFile:
        """A file to write the blob into, invisible until adopted. Dead processes' ones are removed.

        Raises:
            OSError: the cache cannot be written.
        """
        return open_temporary(self._partial / sha256)

    def adopt(self, temporary: TemporaryFile, sha256: str) -> Path:
        """Make a verified temporary visible as the blob, read-only and durable.

        When another process was first, its file stays and ours goes.

        Raises:
            OSError: the cache cannot be written.
        """
        final = self.path(sha256)
        if self.has(sha256, size=temporary.path.stat().st_size):
            temporary.discard()
        else:
            temporary.publish(final, mode=READ_ONLY)
        return final

    def quarantine(self, sha256: str, *, reason: str) -> Path | None:
        """Take a wrong blob out of sight; returns where it lies now, None when it was gone already."""
        taken = self.root / "quarantine" / sha256
        taken.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path(sha256).rename(taken)
        except FileNotFoundError:
            return None
        _log.warning("blob %s quarantined: %s", sha256, reason)
        return taken

    def free_bytes(self) -> int:
        """What is free on the disk where the cache lies, or will lie."""
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        return shutil.disk_usage(there).free

    def sweep(self) -> int:
        """Remove all temporaries of dead processes; returns how many."""
        folders = list(self._partial.iterdir()) if self._partial.is_dir() else []
        removed = sum(sweep(folder) for folder in folders)
        for folder in folders:
            _remove_if_empty(folder)
        return removed

    @property
    def _partial(self) -> Path:
        return self.root / ".partial"


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
