"""What this machine can do at most, measured in the same run: the link, the disk, SHA-256, the CPU."""

import hashlib
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hydrate_files import GIB, MIB, Sample, warm
from benchmarks.hydrate_run import plain_environment

ROOT = Path(__file__).resolve().parent.parent
CORES = len(os.sched_getaffinity(0))
LEAST_CPU_S = 1.1
"""CPU seconds for each GiB that a client needs at least: to receive, write and hash it."""
_BLOCK = 1 * MIB
_TIMES = 2


@dataclass(frozen=True)
class Limits:
    """In GiB/s, for one file at a time where that makes a difference."""

    loopback: float
    disk: float
    sha256: float
    """Of one core."""

    def least(self, *, files: int, server_cpu_s: float) -> tuple[float, str]:
        """The ceiling for this many files, and its name; `server_cpu_s` is what a GiB costs the server."""
        limits = {
            "loopback": self.loopback,
            "synced disk write": self.disk,
            f"SHA-256 x {min(files, CORES)}": self.sha256 * min(files, CORES),
            f"{CORES} cores / ({LEAST_CPU_S} + {server_cpu_s:.2f} CPU s/GiB)": CORES
            / (LEAST_CPU_S + server_cpu_s),
        }
        name = min(limits, key=lambda key: limits[key])
        return limits[name], name


def measure(url: str, sample: Sample, folder: Path) -> Limits:
    """All limits, each the best of its ways."""
    warm([sample])
    return Limits(loopback=_loopback(url, sample), disk=_disk(folder, sample.size), sha256=_sha256())


def _loopback(url: str, sample: Sample) -> float:
    def rate(connections: int) -> float:
        call = [sys.executable, "-m", "benchmarks.hydrate_sink", url, str(sample.size), str(connections)]
        done = subprocess.run(
            call, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=plain_environment()
        )
        return float(done.stdout) / GIB

    return max(rate(connections) for connections in (1, 2, 4, 8) for _ in range(_TIMES))


def _disk(folder: Path, size: int) -> float:
    path = folder / "ceiling.bin"
    ways: list[Callable[[], None]] = [
        lambda: _write(path, size, flags=0, block=8 * MIB),
        lambda: _write(path, size, flags=os.O_DIRECT, block=8 * MIB),
        lambda: _write(path, size, flags=os.O_DIRECT, block=1 * MIB),
    ]
    best_s = min(_timed(path, way) for way in ways for _ in range(_TIMES))
    return size / GIB / best_s


def _timed(path: Path, write: Callable[[], None]) -> float:
    os.sync()
    begun = time.perf_counter()
    try:
        write()
        return time.perf_counter() - begun
    except OSError:  # a file system without O_DIRECT
        return float("inf")
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, size: int, *, flags: int, block: int) -> None:
    with mmap.mmap(-1, block) as data:
        data.write(os.urandom(block))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags)
        try:
            os.posix_fallocate(fd, 0, size)
            for at in range(0, size, block):
                os.pwrite(fd, data, at)
            os.fsync(fd)
        finally:
            os.close(fd)


def _sha256() -> float:
    data = os.urandom(_BLOCK)

    def once() -> float:
        digest, begun = hashlib.sha256(), time.perf_counter()
        for _ in range(GIB // _BLOCK):
            digest.update(data)
        return time.perf_counter() - begun

    return 1 / statistics.median(once() for _ in range(3))
