"""`uv pip compile` as a function: requirements in, pins or the reason why there are none out."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from comfyfarm.addresses import mask
from comfyfarm.errors import TryLater, UsageError
from comfyfarm.lock.requirement_lines import RequirementLine

DEFAULT_PLATFORM: Final = "x86_64-unknown-linux-gnu"
_TIMEOUT_S = 600
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^\s`'\"]+", re.IGNORECASE)
_BROKEN = re.compile(r"Couldn't parse requirement in `s(\d+)\.in` at position (\d+)")
_NETWORK = re.compile(
    r"error sending request|failed to fetch|request failed|dns error|timed out|connection|status code",
    re.IGNORECASE,
)
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(\S+)")
_SOURCE = re.compile(r"-r s(\d+)\.in")


class Ending(StrEnum):
    """How a call of uv ended."""

    SOLVED = "solved"
    NO_SOLUTION = "no_solution"
    BROKEN_LINE = "broken_line"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Pin:
    """One package at one version."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]
    """The packs and packages that require it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What uv said."""

    ending: Ending
    pins: tuple[Pin, ...] = ()
    reason: str = ""
    """Its words for people, without logins."""
    broken: RequirementLine | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What is solved for, and from where."""

    python_version: str = f"{sys.version_info.major}.{sys.version_info.minor}"
    platform: str = DEFAULT_PLATFORM
    """As uv names it, such as `x86_64-unknown-linux-gnu` or `windows`."""
    wheelhouse: Path | None = None
    """A folder of wheels, instead of any index."""
    allow_builds: bool = False
    """Whether source distributions may be built to learn what they require: that runs their code."""


def find_uv() -> Path:
    """The program, from PATH or beside the Python that runs.

    Raises:
        UsageError: it is not installed.
    """
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    found = shutil.which("uv") or next(
        (path for folder in beside if (path := shutil.which("uv", path=str(folder)))), None
    )
    if found is None:
        raise UsageError("uv is not installed, which solves the Python environment; pip install uv")
    return Path(found)


def compile_requirements(
    lines: Sequence[RequirementLine], target: Target, *, uv: Path, hashes: bool = False
) -> Answer:
    """Solve these requirements together.

    Raises:
        TryLater: an index did not answer.
        UsageError: the wheelhouse is no folder, or uv knows no such platform or Python.
    """
    if target.wheelhouse is not None and not target.wheelhouse.is_dir():
        raise UsageError(f"{target.wheelhouse}: is no folder of wheels")
    if not lines:
        return Answer(Ending.SOLVED)
    packs = list(dict.fromkeys(line.pack for line in lines))
    groups = [[line for line in lines if line.pack == pack] for pack in packs]
    with tempfile.TemporaryDirectory(prefix="comfyfarm-uv-") as folder:
        for place, group in enumerate(groups):
            text = "".join(f"{line.text}\n" for line in group)
            Path(folder, f"s{place}.in").write_text(text, encoding="utf-8")
        command = [str(uv), *_arguments(len(groups), target, hashes=hashes)]
        done = _run(command, Path(folder))
    if done.returncode == 0:
        return Answer(Ending.SOLVED, tuple(_pins(done.stdout, packs)))
    return _failure(done.stderr, groups)


def _arguments(sources: int, target: Target, *, hashes: bool) -> Iterator[str]:
    yield from ("pip", "compile", *(f"s{place}.in" for place in range(sources)))
    yield from ("--python-version", target.python_version, "--python-platform", target.platform)
    yield from ("--python", sys.executable, "--no-python-downloads", "--no-header", "--color", "never")
    yield from ("--no-progress", "--annotation-style", "split")
    if hashes:
        yield "--generate-hashes"
    if not target.allow_builds:
        yield "--no-build"
    if target.wheelhouse is not None:
        yield from ("--no-index", "--find-links", str(target.wheelhouse.absolute()))


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=_TIMEOUT_S,
            check=False, env=_environment(),
        )  # fmt: skip
    except subprocess.TimeoutExpired as exc:
        raise TryLater(f"uv did not solve the requirements in {_TIMEOUT_S} s") from exc


def _environment() -> Mapping[str, str]:
    """Ours, without the settings that would change what is printed."""
    return {key: value for key, value in os.environ.items() if key not in {"UV_OUTPUT_FILE", "RUST_LOG"}}


def _failure(stderr: str, groups: Sequence[Sequence[RequirementLine]]) -> Answer:
    reason = _reason(stderr)
    broken = _BROKEN.search(stderr)
    if broken is not None:
        line = _at(groups[int(broken[1])], int(broken[2]))
        return Answer(Ending.BROKEN_LINE, reason=reason.rpartition(" cause: ")[2], broken=line)
    if "invalid value" in stderr and "--python-" in stderr:
        raise UsageError(f"uv does not take a value: {reason[:300]}")
    if "No solution found" in stderr:
        return Answer(Ending.NO_SOLUTION, reason=reason)
    if _NETWORK.search(stderr):
        raise TryLater(f"the Python environment cannot be solved now: {reason[:300]}")
    return Answer(Ending.FAILED, reason=reason)


def _at(group: Sequence[RequirementLine], position: int) -> RequirementLine:
    """The line at a place in the file that was written of them, counted in bytes."""
    for line in group:
        position -= len(line.text.encode()) + 1
        if position < 0:
            return line
    return group[-1]


def _reason(stderr: str) -> str:
    """Uv's words in one line, from the cause on."""
    text = " ".join(re.sub(r"[\u00d7\u2500-\u257f\u25b6]", " ", stderr).split())
    text = _ADDRESS.sub(lambda found: mask(found[0]), text)
    text = re.sub(r"^(error:|warning:)\s*", "", text)
    return re.sub(r"^No solution found when resolving dependencies:?\s*(cause:)?\s*", "", text)


def _pins(stdout: str, packs: Sequence[str]) -> Iterator[Pin]:
    """Read the form that uv writes: the pin, its hashes, then who requires it, in comments."""
    block: list[str] = []
    for line in [*stdout.splitlines(), "end"]:
        if block and not line.startswith(" "):
            yield from _pin(block, packs)
            block = []
        block.append(line)


def _pin(block: Sequence[str], packs: Sequence[str]) -> Iterator[Pin]:
    found = _PIN.match(block[0])
    if found is None:
        return
    hashes = tuple(re.findall(r"--hash=(\S+)", " ".join(block)))
    comments = (line.strip().lstrip("#").strip() for line in block if line.lstrip().startswith("#"))
    names = (line.removeprefix("via").strip() for line in comments)
    via = tuple(_who(name, packs) for name in names if name)
    yield Pin(found[1], found[2], hashes, via)


def _who(name: str, packs: Sequence[str]) -> str:
    source = _SOURCE.fullmatch(name)
    return packs[int(source[1])] if source is not None else name
