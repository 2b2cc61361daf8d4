"""State directories that PostgreSQL's user can reach, and what tests ask of real processes."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from comfyfarm.clock import SystemClock, pause
from comfyfarm.control.launch import stop_control

WaitUntil = Callable[[Callable[[], bool]], None]


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """An empty state directory with a short name, removed afterwards with whatever runs in it."""
    folder = Path(tempfile.mkdtemp(prefix="comfyfarm-test-")).resolve()
    folder.chmod(0o755)
    yield folder
    stop_control(folder)
    shutil.rmtree(folder)


@pytest.fixture
def wait_until() -> WaitUntil:
    """Waits for a condition, at most 30 s."""

    def wait(is_true: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = SystemClock().monotonic() + timeout_s
        while not is_true():
            assert SystemClock().monotonic() < deadline, "not true in time"
            pause(0.02)

    return wait


@pytest.fixture
def find_processes() -> Callable[[Path], list[psutil.Process]]:
    """The living processes that have a path in their command line or environment's PREFECT_HOME."""

    def find(folder: Path) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                home = process.environ().get("PREFECT_HOME", "")
                named = str(folder) in " ".join(process.cmdline()) or str(folder) in home
                if named and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    return find


@pytest.fixture
def start_python() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts Python programs and ends what is left of them."""
    started: list[subprocess.Popen[str]] = []

    def start(arguments: Sequence[str], *, prefix: Sequence[str] = ()) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*prefix, sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def as_plain_user(state_dir: Path) -> Sequence[str]:
    """A command prefix that gives root's rights up, if we have any, and the state directory with them.

    Reading stays: the Python that runs the tests may lie in root's home.
    """
    if os.geteuid() != 0:
        return []
    os.chown(state_dir, 65534, 65534)
    reading = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *reading]
