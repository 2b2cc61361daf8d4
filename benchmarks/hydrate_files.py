"""Files of random bytes on a real disk, and how much of everything a run of the group uses."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
SCALE = int(os.environ.get("COMFYFARM_BENCH_SCALE", "1"))
"""For a trial of the harness: files are shorter, or fewer, by this. Each figure says what they were."""
ROUNDS = 3
_BLOCK = 8 * MIB
_NEEDED_BYTES = 20 * GIB // SCALE + GIB


@dataclass(frozen=True)
class Sample:
    """A file of random bytes."""

    path: Path
    size: int
    """Bytes."""
    sha256: str


@contextmanager
def working_folder() -> Iterator[Path]:
    """A folder on a disk, in `TMPDIR` or `/var/tmp` (which, unlike `/tmp`, is never memory); gone at the end.

    Raises:
        RuntimeError: it has too little room.
    """
    above = os.environ.get("TMPDIR") or "/var/tmp"  # noqa: S108 - a folder of our own is made in it
    free = shutil.disk_usage(above).free
    if free < _NEEDED_BYTES:
        raise RuntimeError(
            f"{above}: {free >> 30} GiB free of {_NEEDED_BYTES >> 30}; set TMPDIR to a larger disk"
        )
    with tempfile.TemporaryDirectory(prefix="comfyfarm-bench-", dir=above) as name:
        yield Path(name)


@contextmanager
def samples(folder: Path, *, count: int, size: int) -> Iterator[list[Sample]]:
    """Files of random bytes in a folder of their own, synced; removed at the end."""
    folder.mkdir(parents=True)
    try:
        yield [_random_file(folder / f"{number:03}.bin", size) for number in range(count)]
    finally:
        shutil.rmtree(folder)


def warm(files: Sequence[Sample]) -> None:
    """Read the files through, so that they lie in the page cache."""
    buffer = bytearray(_BLOCK)
    for sample in files:
        with sample.path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


@contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """A fresh folder for what a run writes; removed at the end."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _random_file(path: Path, size: int) -> Sample:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for at in range(0, size, _BLOCK):
            data = os.urandom(min(_BLOCK, size - at))
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Sample(path, size, digest.hexdigest())


def size_of(files: Sequence[Sample]) -> float:
    """All of them together, in GiB."""
    return sum(sample.size for sample in files) / GIB


def shown(count: int, size: int) -> str:
    """`8 x 512 MiB`."""
    if size % 1_000_000 == 0:
        return f"{count} x {size // 1_000_000} MB"
    unit, each = ("GiB", size / GIB) if size >= GIB else ("MiB", size / MIB)
    return f"{count} x {each:g} {unit}"
