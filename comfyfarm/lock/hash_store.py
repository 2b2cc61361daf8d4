"""SHA-256 of files of this machine, kept: a file is hashed once, and again only when it has changed."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import TryLater
from comfyfarm.ids import Sha256

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with a file's path, the bytes looked at so far, and the bytes of all files."""

_HASHES = "model-hashes.json"
_CHUNK_BYTES = 4 * 1024 * 1024
_RACY_S = 2.0  # a file written this shortly ago may change again within one tick of its mtime
_SAVE_AFTER_BYTES = 4 * 1024**3  # a kill during half a terabyte of hashing must not lose all of it
_TRIES = 3


class Meter:
    """Adds up what was looked at and tells whoever watches."""

    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, file: Path, size_bytes: int) -> None:
        """Tell of so many bytes more."""
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(str(file), self._done_bytes, self._total_bytes)


class HashStore:
    """Known hashes. A file is the same when device, inode, size and modification time are."""

    def __init__(self, state_dir: Path | None = None, *, clock: Clock | None = None) -> None:
        """`state_dir`: where they are kept; None keeps nothing."""
        self._path = state_dir / _HASHES if state_dir is not None else None
        self._clock = clock or SystemClock()
        self._known = _read(self._path)
        self._new: dict[str, str] = {}
        self._unsaved_bytes = 0

    def of(self, file: Path, meter: Meter | None = None) -> tuple[Sha256, int]:
        """Hash and size of what the file holds.

        Raises:
            OSError: it cannot be read.
            TryLater: it changes all the time.
        """
        meter = meter or Meter(None, 0)
        for _ in range(_TRIES):
            stat = file.stat()
            key = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
            known = self._known.get(key)
            if known is not None:
                meter.add(file, stat.st_size)
                return known, stat.st_size
            logger.info("hashing %s (%d bytes)", file, stat.st_size)
            digest, after = _hash(file, meter, stat.st_size)
            if (after.st_ino, after.st_size, after.st_mtime_ns) == (
                stat.st_ino,
                stat.st_size,
                stat.st_mtime_ns,
            ):
                self._keep(key, digest, stat)
                return digest, stat.st_size
        raise TryLater(f"{file}: is being written; wait until it is whole")

    def save(self) -> None:
        """Keep what was found, beside what others of the same state directory have found."""
        if self._path is None or not self._new:
            return
        merged = {**_read(self._path), **self._new}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{_HASHES}.")
            with os.fdopen(handle, "w") as out:
                json.dump(merged, out)
            Path(temporary).replace(self._path)
        except OSError as exc:
            logger.warning("hashes of models could not be kept in %s: %s", self._path, exc.strerror)
        self._new, self._unsaved_bytes = {}, 0

    def _keep(self, key: str, digest: Sha256, stat: os.stat_result) -> None:
        if self._clock.now() - stat.st_mtime <= _RACY_S:
            return
        self._known[key] = self._new[key] = digest
        self._unsaved_bytes += stat.st_size
        if self._unsaved_bytes > _SAVE_AFTER_BYTES:
            self.save()


def _read(path: Path | None) -> dict[str, str]:
    found: Any = {}
    if path is not None:
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        return {}
    return {key: sha for key, sha in found.items() if isinstance(sha, str) and len(sha) == 64}


def _hash(file: Path, meter: Meter, size_bytes: int) -> tuple[Sha256, os.stat_result]:
    """Of as many bytes as the file had: one that grows all the time comes to an end, too."""
    digest = hashlib.sha256()
    left = size_bytes
    with file.open("rb", buffering=0) as source:
        while chunk := source.read(min(_CHUNK_BYTES, left)):
            left -= len(chunk)
            digest.update(chunk)
            meter.add(file, len(chunk))
        return digest.hexdigest(), os.fstat(source.fileno())
