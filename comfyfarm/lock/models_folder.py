"""A models folder as a catalogue: every file is hashed once, and again only when it has changed."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import CatalogueError
from comfyfarm.ids import Sha256
from comfyfarm.lock.listing import Catalogue, CatalogueEntry, collect

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called with a file's path, the bytes looked at so far, and the bytes of all files."""

_HASHES = "model-hashes.json"
_CHUNK_BYTES = 4 * 1024 * 1024
_UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".aria2", ".lock", ".download")
_RACY_S = 2.0  # a file written this shortly ago may change again within one tick of its mtime


def catalogue_from_dir(
    path: Path,
    *,
    state_dir: Path | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Catalogue:
    """Hash a ComfyUI models folder: each folder in it is a key, each file below it a model.

    Hidden and unfinished files and ComfyUI's `put_…_here` are passed over, links are followed.

    Args:
        path: the folder that has `checkpoints`, `loras` and so on in it.
        state_dir: where hashes are kept, by device, inode, size and modification time.
        progress: told after each stretch of a file.
        clock: says what is too young to be remembered.

    Raises:
        CatalogueError: there is no such folder, or a file cannot be read or be named in a lock.
    """
    if not path.is_dir():
        raise CatalogueError(f"{path}: there is no such folder; name ComfyUI's models folder")
    known = _Hashes(state_dir / _HASHES if state_dir else None, clock or SystemClock())
    try:
        files = list(_files(path))
        total = sum(file.stat().st_size for _, _, file in files)
        entries = list(_entries(files, known, _Meter(progress, total)))
    except OSError as exc:
        raise CatalogueError(f"{exc.filename or path}: cannot be read ({exc.strerror})") from exc
    except ValueError as exc:
        raise CatalogueError(f"{path}: {exc}") from exc
    finally:
        known.save()
    return collect(entries, name=str(path))


def _entries(
    files: list[tuple[str, str, Path]], known: "_Hashes", meter: "_Meter"
) -> Iterator[CatalogueEntry]:
    for folder, relative, file in files:
        sha256, size = known.of(file, meter)
        yield CatalogueEntry(
            folder=folder, path=relative, sha256=sha256, size=size, sources=(str(file.absolute()),)
        )


def _files(root: Path) -> Iterator[tuple[str, str, Path]]:
    for folder in sorted(item for item in root.iterdir() if item.is_dir() and not _is_hidden(item.name)):
        seen: set[str] = set()
        for place, folders, names in os.walk(folder, followlinks=True):
            real = str(Path(place).resolve())
            if real in seen:  # links that lead round in a circle
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            for name in sorted(names):
                file = Path(place, name)
                if not _is_passed_over(name) and file.is_file():
                    yield folder.name, file.relative_to(folder).as_posix(), file


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_passed_over(name: str) -> bool:
    return _is_hidden(name) or name.lower().endswith(_UNFINISHED) or _is_placeholder(name)


def _is_placeholder(name: str) -> bool:
    return name.startswith("put_") and "." not in name


class _Meter:
    """Adds up what was looked at and tells whoever watches."""

    def __init__(self, progress: Progress | None, total_bytes: int) -> None:
        self._progress = progress
        self._total_bytes = total_bytes
        self._done_bytes = 0

    def add(self, file: Path, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(str(file), self._done_bytes, self._total_bytes)


class _Hashes:
    """Known hashes. A file is the same when device, inode, size and modification time are."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._known: dict[str, str] = _read_hashes(path)
        self._used: dict[str, str] = {}

    def of(self, file: Path, meter: _Meter) -> tuple[Sha256, int]:
        stat = file.stat()
        key = f"{stat.st_dev}:{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}"
        known = self._known.get(key)
        if known is not None:
            meter.add(file, stat.st_size)
        else:
            logger.info("hashing %s (%d bytes)", file, stat.st_size)
            known = _hash(file, meter)
        if self._clock.now() - stat.st_mtime > _RACY_S:
            self._used[key] = known
        return known, stat.st_size

    def save(self) -> None:
        """Keep what was found, beside what others of the same state directory have found."""
        if self._path is None or not self._used.keys() - self._known.keys():
            return
        merged = {**_read_hashes(self._path), **self._used}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=f".{_HASHES}.")
            with os.fdopen(handle, "w") as out:
                json.dump(merged, out)
            Path(temporary).replace(self._path)
        except OSError as exc:
            logger.warning("hashes of models could not be kept in %s: %s", self._path, exc.strerror)


def _read_hashes(path: Path | None) -> dict[str, str]:
    found: Any = {}
    if path is not None:
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        return {}
    return {key: sha for key, sha in found.items() if isinstance(sha, str) and len(sha) == 64}


def _hash(file: Path, meter: _Meter) -> Sha256:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            meter.add(file, len(chunk))
    return digest.hexdigest()
