"""Brings what a finished prompt left on its server to this host: streamed, hashed, under safe names."""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from comfyfarm.clock import Clock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import HistoryEntry, OutputEntry
from comfyfarm.errors import ProtocolError, ServerError
from comfyfarm.ids import JobId
from comfyfarm.outputs.names import SpooledFile, safe_relative
from comfyfarm.outputs.whole import is_whole

logger = logging.getLogger(__name__)

_TRIES = 3
_TROUBLED_S = 20.0
"""A server that does not answer, or with 5xx, still has the file: as long as it is borne elsewhere."""
_PARTIAL = ".partial"  # the file that is not whole yet


class Spool:
    """Where rendered files wait on this host until they are synced, a folder for each job."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, job_id: JobId) -> Path:
        """The job's own folder; it need not exist."""
        return self._root / job_id

    def jobs(self) -> tuple[JobId, ...]:
        """Jobs that have a folder here, whichever ledger they are in."""
        return tuple(JobId(entry.name) for entry in os.scandir(self._root)) if self._root.is_dir() else ()

    def clear(self, job_id: JobId) -> None:
        """Forget the job's files: they are synced, or about to be collected anew."""
        folder = self.folder(job_id)
        try:
            # Most jobs have a file or two: looking for more costs several times as much.
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)


async def collect(
    client: ComfyClient, entry: HistoryEntry, *, job_id: JobId, spool: Spool, clock: Clock
) -> tuple[SpooledFile, ...]:
    """Download every output of the entry, whatever its key; texts become small files.

    Entries of type `temp` are left out unless there is nothing else.

    Raises:
        ServerError: a listed file could not be had whole after three tries.
    """
    spool.clear(job_id)
    folder = spool.folder(job_id)
    partial = folder / _PARTIAL
    folder.mkdir(parents=True)
    names = _Names()
    files = []
    for output in _wanted(entry.files()):
        path = names.free(_place(output, job_id), output.node)
        sha256, size = await _download(client, output, partial, clock=clock)
        files.append(_keep(partial, folder, path, sha256=sha256, size=size))
    for text in entry.texts():
        data = text.text.encode("utf-8", "replace")
        partial.write_bytes(data)
        path = names.free(safe_relative("text", f"{text.node}_{text.key}.txt"), text.node)
        sha256 = hashlib.sha256(data).hexdigest()
        files.append(_keep(partial, folder, path, sha256=sha256, size=len(data)))
    return tuple(files)


def _wanted(entries: Iterable[OutputEntry]) -> tuple[OutputEntry, ...]:
    found = tuple(entries)
    kept = tuple(entry for entry in found if entry.type != "temp")
    return kept or found


def _place(entry: OutputEntry, job_id: JobId) -> str:
    """The job's own prefix is left out of the path: it is the folder's name already."""
    parts = entry.subfolder.replace("\\", "/").split("/")
    own = parts[1:] if parts[0] == job_id else parts
    return safe_relative("/".join(own), entry.filename)


class _Names:
    """The paths of a job's files and folders. Case is no difference: on some file systems it is none."""

    def __init__(self) -> None:
        self._files = {_PARTIAL}
        self._folders: set[str] = set()

    def free(self, path: str, node: str) -> str:
        """The path, or one that names the node where another file or folder of this job has it."""
        folder, _, name = path.rpartition("/")
        tries = 0
        while not self._take(path.casefold()):
            tries += 1
            # A file may lie where this one's folder should be: then it goes to the top.
            path = safe_relative(folder if tries == 1 else "", f"node{node}_{tries}_{name}")
        return path

    def _take(self, path: str) -> bool:
        parts = path.split("/")
        folders = {"/".join(parts[:length]) for length in range(1, len(parts))}
        if path in self._files or path in self._folders or folders & self._files:
            return False
        self._files.add(path)
        self._folders |= folders
        return True


def _keep(file: Path, folder: Path, path: str, *, sha256: str, size: int) -> SpooledFile:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    file.rename(target)
    return SpooledFile(path=path, local=target, sha256=sha256, size=size)


async def _download(
    client: ComfyClient, entry: OutputEntry, target: Path, *, clock: Clock
) -> tuple[str, int]:
    end = clock.monotonic() + _TROUBLED_S
    faults = 0  # those that say that the file is not there
    for tries in count(1):
        try:
            found = await client.download(entry, target)
            if not is_whole(target, name=entry.filename):
                raise ProtocolError(client.shown_url, f"/view of {entry.filename}: not the whole file")
            return found
        except ServerError as exc:
            faults += not _may_pass(exc)
            if faults >= _TRIES or (tries >= _TRIES and clock.monotonic() >= end):
                raise
            logger.warning("output %s of node %s: %s; again", entry.filename, entry.node, exc)
            await clock.sleep(0.5 * min(tries, _TRIES))
    raise AssertionError


def _may_pass(fault: ServerError) -> bool:
    if isinstance(fault, ProtocolError):
        return fault.status is not None and (fault.status >= 500 or fault.status == 429)
    return True
