"""Uploads to one SeaweedFS server: 500 of 2 MB and one of 2 GiB, beside s5cmd."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.hydrate_files import GIB, ROUNDS, SCALE, Sample, samples, shown, size_of, warm
from benchmarks.hydrate_link import missing
from benchmarks.hydrate_peers import INSTALL, PROGRAM, found_program
from benchmarks.hydrate_run import Run, interleaved, median_cpu_s, median_s, timed
from infra.s3_server import S3Server, s3_server

MANY = 10
"""From so many files on they go up as outputs do, all at once."""
SHAPES = ((max(MANY, 500 // SCALE), 2_000_000), (1, 2 * GIB // SCALE))
MEMORY_MB = 350


@dataclass(frozen=True)
class Bucket:
    """Files that are to go up, each run under a prefix of its own."""

    server: S3Server
    files: Sequence[Sample]
    folder: Path
    _number: Iterator[int] = field(default_factory=itertools.count)

    @property
    def log(self) -> Path:
        """What the programs say."""
        return self.folder / "programs.log"

    def prefix(self) -> str:
        """One that nothing lies under yet."""
        return f"s3://{self.server.bucket}/run-{next(self._number)}"


def figures(folder: Path) -> Iterator[Figure]:
    """All figures of uploads."""
    for count, size in SHAPES:
        with (
            samples(folder / "files", count=count, size=size) as files,
            _fresh_server(folder / "server") as server,
        ):
            yield from _of_shape(Bucket(server, files, folder), shown(count, size))


@contextmanager
def _fresh_server(folder: Path) -> Iterator[S3Server]:
    """One for each shape, so that what lies on the disk stays within bounds."""
    try:
        with s3_server(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _of_shape(bucket: Bucket, what: str) -> Iterator[Figure]:
    sides: dict[str, Callable[[], Run]] = {"ours": partial(_ours, bucket)}
    if (program := found_program("s5cmd")) is not None:
        sides["s5cmd"] = partial(_s5cmd, bucket, program)
    runs = interleaved(sides, rounds=ROUNDS)
    gib = size_of(bucket.files)
    against = f"{what} to SeaweedFS on this machine, median of {ROUNDS}, interleaved"
    for name, found in runs.items():
        rate, cpu = gib / median_s(found), median_cpu_s(found) / gib
        yield Figure(f"upload rate of {name}, {what}", round(rate, 3), "GiB/s", "none", True, against)
        yield Figure(f"upload CPU of {name}, {what}", round(cpu, 3), "CPU s/GiB", "none", True, against)
    yield _beside_s5cmd(runs, what)
    peak, road = max(run.peak_mb for run in runs["ours"]), "the uploading process"
    if len(bucket.files) < MANY:
        added = _mirror_add(bucket)
        taken = f"hashed first, its start included; {what}"
        yield Figure("mirror add of one file", round(added.wall_s, 2), "s", "none", ok=True, against=taken)
        peak, road = max(peak, added.peak_mb), "the uploading process and `comfyfarm mirror add`"
    bar, ok = f"< {MEMORY_MB}", peak < MEMORY_MB
    yield Figure(
        f"upload, peak memory, {what}", round(peak, 1), "MB", bar, ok, f"the most of all runs, {road}"
    )


def _beside_s5cmd(runs: Mapping[str, Sequence[Run]], what: str) -> Figure:
    name, unit = f"upload, time beside s5cmd, {what}", "times the time"
    if "s5cmd" not in runs:
        return missing(name, unit, "<= 1.0", INSTALL["s5cmd"])
    ours, theirs = median_s(runs["ours"]), median_s(runs["s5cmd"])
    against = (
        f"s5cmd cp to the same server: {ours:.2f} s of ours beside {theirs:.2f} s, medians of {ROUNDS}, "
        "interleaved, starts included"
    )
    return Figure(name, round(ours / theirs, 3), unit, "<= 1.0", ours <= theirs, against)


def _ours(bucket: Bucket) -> Run:
    """As outputs go up: hashed when they were made, so here they are only sent, and checked by the server."""
    warm(bucket.files)
    given = {
        "address": bucket.prefix(),
        "many": len(bucket.files) >= MANY,
        "files": [
            {"name": file.path.name, "file": str(file.path), "sha256": file.sha256, "size": file.size}
            for file in bucket.files
        ],
    }
    asked = bucket.folder / "upload.json"
    asked.write_text(json.dumps(given))
    command = [sys.executable, "-m", "benchmarks.hydrate_upload_side", str(asked)]
    return timed(command, log=bucket.log, environment=bucket.server.environment)


def _s5cmd(bucket: Bucket, program: str) -> Run:
    warm(bucket.files)
    here = bucket.files[0].path.parent
    what = [f"{here}/*", f"{bucket.prefix()}/"]
    if len(bucket.files) == 1:
        what = ["-c", "16", str(bucket.files[0].path), f"{bucket.prefix()}/"]
    command = [program, "--endpoint-url", bucket.server.endpoint, "--log", "error", "cp", *what]
    return timed(command, log=bucket.log, environment=bucket.server.environment)


def _mirror_add(bucket: Bucket) -> Run:
    """The command for one model file: it also hashes it, since only then is its name known."""
    warm(bucket.files)
    command = [PROGRAM, "mirror", "add", str(bucket.files[0].path), "--mirror", bucket.prefix()]
    environment = bucket.server.environment
    return timed([*command, "--folder", "checkpoints"], log=bucket.log, environment=environment)
