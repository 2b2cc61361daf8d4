"""The host's content-addressed store: a file lies under its SHA-256, whole and verified, or not at all.

Layout under the root: `sha256/<first 2>/<64 hex>`, `.partial/<sha>/` for what is on its way, `quarantine/`
for what turned out to be wrong, `views/<lock digest>/` for ComfyUI.
"""

import contextlib
import logging
import shutil
from pathlib import Path
from typing import Protocol

from comfyfarm.addresses import expanded
from comfyfarm.cache.disk import SYSTEM_DISK, Disk
from comfyfarm.cache.partial import remove_partial
from comfyfarm.cache.quarantine import quarantine_file
from comfyfarm.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

READ_ONLY = 0o444
PARTIAL_KEPT_S = 7 * 86400
"""A transfer that nobody went on with for so long is given up."""


def blob_key(sha256: str) -> str:
    """Where a blob lies, in cache and mirror alike, relative to the root."""
    return f"sha256/{sha256[:2]}/{sha256}"


class Landed(Protocol):
    """What has landed whole, and was verified; `Landing` is one."""

    size: int

    def publish(self, final: Path, *, mode: int) -> None:
        """Make it visible."""
        ...

    def close(self, *, keep: bool) -> None:
        """Let go of it."""
        ...


class BlobStore:
    """The blobs under `root`. Any number of processes may use one root at once."""

    def __init__(self, root: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.root = expanded(root).absolute()
        self.disk = disk

    def path(self, sha256: str) -> Path:
        """Where this blob lies, or would lie."""
        return self.root / blob_key(sha256)

    def partial(self, sha256: str) -> Path:
        """The folder in which this blob lands before it is whole."""
        return self._partial / sha256

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

    def adopt_landing(self, landing: Landed, sha256: str) -> Path:
        """Make a verified landing visible as the blob, read-only and durable; it is closed then.

        When another process was first, its file stays and ours goes.

        Raises:
            OSError: the cache cannot be written. The landing is still to be closed.
        """
        final = self.path(sha256)
        if self.has(sha256, size=landing.size):
            landing.close(keep=False)
        else:
            landing.publish(final, mode=READ_ONLY)
        return final

    def quarantine(self, sha256: str, *, reason: str) -> Path | None:
        """Take a wrong blob out of sight; returns where it lies now, None when it was gone already.

        The last few are kept, each with its reason beside it.

        Raises:
            OSError: the cache cannot be written.
        """
        taken = quarantine_file(self.path(sha256), self.root / "quarantine", reason=reason, disk=self.disk)
        if taken is not None:
            _log.warning("blob %s quarantined: %s", sha256, reason)
        return taken

    def free_bytes(self) -> int:
        """What is free on the disk where the cache lies, or will lie."""
        there = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        return shutil.disk_usage(there).free

    def sweep(self, *, clock: Clock | None = None) -> int:
        """Remove transfers that nobody went on with for 7 days.

        Returns:
            How many. A transfer that is younger stays, to be resumed.
        """
        oldest = (clock or SystemClock()).now() - PARTIAL_KEPT_S
        removed = 0
        for folder in self._partial_folders():
            with contextlib.suppress(OSError):
                removed += remove_partial(folder, before_s=oldest, disk=self.disk)
        return removed

    @property
    def _partial(self) -> Path:
        return self.root / ".partial"

    def _partial_folders(self) -> list[Path]:
        try:
            return [path for path in self._partial.iterdir() if path.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
