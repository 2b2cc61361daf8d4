"""Leases: files that name what their process needs, alive as long as it is, by the kernel's lock."""

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.cache_lock import LEASES, is_locked, lock, unlock
from comfyfarm.cache.keeper.strange import open_regular

_SUFFIX = ".lease"


class LeaseNote(NamedTuple):
    """What a living lease says."""

    who: str
    since: float
    """Unix time in seconds."""
    files: Mapping[str, int]
    """Sizes by SHA-256 of what its process needs, here or still to come."""


class Lease:
    """What keeps files from being evicted until it is closed, or its process ends."""

    def __init__(self, fds: Sequence[int], path: Path | None = None, disk: Disk | None = None) -> None:
        """Keeps the locked descriptors."""
        self._fds = list(fds)
        self._path = path
        self._disk = disk

    def close(self) -> None:
        """Let go. Where the file cannot be removed, it is known to be left over."""
        if self._path is not None and self._disk is not None and self._fds:
            with contextlib.suppress(OSError):
                self._disk.unlink(self._path)
        while self._fds:
            unlock(self._fds.pop())


def take(root: Path, files: Mapping[str, int], *, who: str, since: float, disk: Disk) -> Lease:
    """Write a lease. The cache has to be locked: else it may be taken for a dead one.

    Raises:
        OSError: the cache cannot be written. Nothing is left.
    """
    path = root / LEASES / f"{os.getpid()}-{secrets.token_hex(6)}{_SUFFIX}"
    fd = disk.open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    lease = Lease([fd], path, disk)
    try:
        lock(fd)
        raw = {"v": 1, "who": who or this_process(), "since": since, "files": dict(files)}
        disk.write_at(fd, json.dumps(raw).encode(), 0, path)
    except BaseException:
        lease.close()
        raise
    return lease


def take_by_blobs(blobs: BlobStore, shas: Sequence[str]) -> Lease:
    """A lease that needs no room: shared locks on the blobs themselves, for a disk that is full or read-only.

    Raises:
        FileNotFoundError: one has just been evicted.
    """
    lease = Lease([])
    try:
        for sha in shas:
            fd = open_regular(blobs.path(sha))
            lease._fds.append(fd)
            lock(fd, shared=True)
            if not os.fstat(fd).st_nlink:
                raise FileNotFoundError(2, "has just been evicted", str(blobs.path(sha)))
    except BaseException:
        lease.close()
        raise
    return lease


def living(root: Path, *, sweep_with: Disk | None = None) -> Iterator[LeaseNote]:
    """The leases of living processes. With the cache locked and a disk, those of dead ones are removed."""
    folder = root / LEASES
    for path in sorted(folder.glob(f"*{_SUFFIX}")) if folder.is_dir() else ():
        try:
            fd = open_regular(path)
        except OSError:
            continue  # gone, or no lease: nobody here writes one that is no regular file
        with os.fdopen(fd, "rb") as file:
            if is_locked(fd):
                yield _read(file.read())
            elif sweep_with is not None:
                with contextlib.suppress(OSError):
                    sweep_with.unlink(path)


def this_process() -> str:
    """A name for this process, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _read(raw: bytes) -> LeaseNote:
    try:
        note = json.loads(raw)
        files = {str(sha): int(size) for sha, size in note["files"].items()}
        return LeaseNote(str(note["who"]), float(note["since"]), files)
    except (ValueError, TypeError, KeyError, AttributeError):
        # Being written just now: whoever has locked the cache never sees one.
        return LeaseNote("a process that is only starting", 0.0, {})
