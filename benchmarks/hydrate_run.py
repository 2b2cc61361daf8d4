"""One timed run of a command, and what several of them come to."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = Path(__file__).with_name("hydrate_launch.py")
_OURS = ("COMFYFARM_", "PREFECT_", "AWS_", "S3_")
_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
_STOP_WITHIN_S = 10.0


@dataclass(frozen=True)
class Run:
    """What one run of a command took, its children and the sync of its files included."""

    wall_s: float
    cpu_s: float
    """User and system."""
    peak_mb: float
    """Peak of the resident memory, in 10^6 bytes."""


class RunFailed(RuntimeError):
    """A measured command did not do what it was to do; the message holds the end of what it said."""


def timed(
    command: Sequence[str],
    *,
    log: Path,
    sync: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run a command by its whole path; the files below `sync` are made durable within its time.

    Raises:
        RunFailed: it ended with another code than 0.
    """
    given = {
        "command": list(command),
        "environment": {**plain_environment(), **(environment or {})},
        "log": str(log),
        "sync": str(sync or ""),
    }
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER)]
    with subprocess.Popen(
        launcher, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            told, _ = process.communicate(json.dumps(given))
        finally:
            _end(process)
    found = json.loads(told) if told else {"code": process.returncode}
    if found["code"] != 0:
        raise RunFailed(f"{Path(command[0]).name} ended with {found['code']}: {_tail(log)}")
    return Run(found["wall_s"], found["cpu_s"], found["peak_kib"] * 1024 / 1e6)


def interleaved(sides: Mapping[str, Callable[[], Run]], *, rounds: int) -> dict[str, list[Run]]:
    """Each side once to warm up, then in turns, beginning with another one each round."""
    names = list(sides)
    for name in names:
        sides[name]()
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            os.sync()  # what an earlier side left to be written is not this one's load
            runs[name].append(sides[name]())
    return runs


def median_s(runs: Sequence[Run]) -> float:
    """Median of the seconds by the clock."""
    return statistics.median(run.wall_s for run in runs)


def median_cpu_s(runs: Sequence[Run]) -> float:
    """Median of the CPU seconds."""
    return statistics.median(run.cpu_s for run in runs)


def plain_environment() -> dict[str, str]:
    """Ours, without settings, credentials and HTTP proxies: all that is measured is on this machine."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OURS) and name.lower() not in _PROXIES
    }


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _tail(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-8:])
