"""Blobs with names, a disk that fails at a given step, and children that die at one."""

import hashlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.keeper.keeper import Bounds, Keeper


@dataclass(frozen=True)
class Blob:
    """A file with its place among the models."""

    sha256: str
    size: int
    data: bytes
    sources: tuple[str, ...] = ()
    folder: str = "vae"
    path: str = "m.pt"

    def called(self, path: str) -> "Blob":
        """The same content under another name."""
        return replace(self, path=path)


class FailingDisk(Disk):
    """Raises an error at the n-th step, and at all later ones where it is to stay broken."""

    def __init__(self, at: int, code: int, *, stays: bool) -> None:
        self.steps = 0
        self._at, self._code, self._stays = at, code, stays

    def step(self, what: str, path: Path) -> None:
        """Count, and fail."""
        self.steps += 1
        if self.steps == self._at or (self._stays and self.steps > self._at):
            raise OSError(self._code, os.strerror(self._code), str(path))


class KillingDisk(Disk):
    """Kills its process at the n-th step, before it."""

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self, what: str, path: Path) -> None:
        """Count, and die."""
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def blob() -> Callable[[str], Blob]:
    """A model of 1000 bytes, by a word; not in the cache."""

    def make(word: str, *, size: int = 1000) -> Blob:
        data = (word.encode() * size)[:size]
        return Blob(hashlib.sha256(data).hexdigest(), size, data, path=f"{word}.pt")

    return make


@pytest.fixture
def put(blobs: BlobStore, blob: Callable[..., Blob]) -> Callable[..., Blob]:
    """A model in the cache, used at the time given, in Unix seconds."""

    def put_it(word: str, *, used: float = 1000.0, size: int = 1000) -> Blob:
        model = blob(word, size=size)
        fill(blobs, model)
        os.utime(blobs.path(model.sha256), (used, used))
        return model

    return put_it


def fill(blobs: BlobStore, model: Blob) -> None:
    """Lay it where a transfer would, and as one would: another process may do the same just now."""
    path = blobs.path(model.sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_bytes(model.data)
    new.chmod(0o444)
    new.replace(path)


@pytest.fixture(name="fill")
def _fill() -> Callable[[BlobStore, Blob], None]:
    return fill


@pytest.fixture
def keep(blobs: BlobStore) -> Callable[..., Keeper]:
    """A keeper of the cache, without bounds where none are given."""

    def make(quota: int | None = None, *, disk: Disk | None = None, free: int = 0) -> Keeper:
        store = blobs if disk is None else BlobStore(blobs.root, disk)
        return Keeper(store, Bounds(quota, free))

    return make


@pytest.fixture
def failing() -> type[FailingDisk]:
    """The disk that fails."""
    return FailingDisk


@pytest.fixture
def dies_at() -> Callable[[int, Callable[[Disk], object]], bool]:
    """Do something in a child that is killed at its n-th step; False once it has no n-th step any more."""

    def run(at: int, work: Callable[[Disk], object]) -> bool:
        child = os.fork()
        if not child:
            code = 1
            try:
                work(KillingDisk(at))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed or os.waitstatus_to_exitcode(status) == 0
        return killed

    return run
