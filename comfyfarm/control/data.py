"""The embedded PostgreSQL's data: made once, and cleared of what a crash left on it."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from comfyfarm.control.children import end_process
from comfyfarm.control.identity import Identity
from comfyfarm.control.place import WAYS_OUT, Place, make_folder
from comfyfarm.errors import ControlUnavailable
from comfyfarm.ledger.owner import process_start

logger = logging.getLogger(__name__)

PORT = 5432
"""Names the socket only; said everywhere, since PGPORT may be set."""
_INITDB_S = 60.0


def postgres_environ(place: Place) -> Mapping[str, str]:
    """Ours without PostgreSQL's own variables, which name another server."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**kept, "LC_ALL": "C", "HOME": str(place.folder)}


def make_data(place: Place, programs: Path, identity: Identity | None) -> None:
    """Make an empty data directory by `initdb`.

    Raises:
        ControlUnavailable: the programs cannot run here; with their words.
    """
    # Under another name first: a crash in the middle leaves no half-made data behind.
    unfinished = place.folder / "data.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    make_folder(unfinished, identity=identity, mode=0o700)
    locale = "C" if sys.platform == "darwin" else "C.UTF-8"
    command = [str(programs / "initdb"), "-D", str(unfinished), "-U", "postgres", "-A", "trust"]
    command += ["-E", "UTF8", f"--locale={locale}", "--no-sync"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            check=False,
            cwd=place.folder,
            env=dict(postgres_environ(place)),
            user=None if identity is None else identity.uid,
            group=None if identity is None else identity.gid,
            extra_groups=None if identity is None else [],
            timeout=_INITDB_S,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ControlUnavailable(f"PostgreSQL's initdb cannot run here: {exc}; {WAYS_OUT}") from exc
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ControlUnavailable(f"PostgreSQL's initdb failed; {WAYS_OUT}\n{tail}")
    unfinished.rename(place.data)


def end_by_data(place: Place) -> None:
    """End a PostgreSQL that runs on our data without our guard; drop the lock files of a dead one.

    A stale file whose number another process has now, or a zombie, would keep it from starting.
    """
    pid_file = place.data / "postmaster.pid"
    pid = _first_number(pid_file)
    if pid is not None:
        start = process_start(pid)
        if _runs_on(pid, place.data):
            logger.warning("ending a left-over PostgreSQL, process %d", pid)
            end_process(pid, start)
    pid_file.unlink(missing_ok=True)
    for name in (f".s.PGSQL.{PORT}.lock", f".s.PGSQL.{PORT}"):
        (place.socket_dir / name).unlink(missing_ok=True)


def _first_number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="utf-8").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None


def _runs_on(pid: int, data: Path) -> bool:
    try:
        return str(data) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
