"""Models folders as a catalogue: the names in them as ComfyUI sees them, the content of those that matter."""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from comfyfarm.clock import Clock
from comfyfarm.errors import CatalogueError
from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.hash_store import HashStore, Meter
from comfyfarm.lock.hash_store import Progress as Progress
from comfyfarm.workflow.folders import modern

logger = logging.getLogger(__name__)

_UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".aria2", ".lock", ".download")
_SEARCH_ORDER = {"unet": 0, "diffusion_models": 1, "text_encoders": 0, "clip": 1}
"""In which of two folders of one key ComfyUI looks first. Source: ComfyUI's folder_paths.py."""


class Root(NamedTuple):
    """One directory that ComfyUI searches for models of one key."""

    folder: str
    path: Path


class _File(NamedTuple):
    folder: str
    relative: str
    path: Path

    @property
    def key(self) -> tuple[str, str]:
        return (modern(self.folder), self.relative)


def catalogue_from_dir(
    path: Path,
    *,
    state_dir: Path | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    wants: Callable[[str, str], bool] | None = None,
) -> Catalogue:
    """Hash a ComfyUI models folder: each folder in it is a key, each file below it a model.

    Hidden and unfinished files and ComfyUI's `put_…_here` are passed over, links are followed.

    Args:
        path: the folder that has `checkpoints`, `loras` and so on in it.
        state_dir: where hashes are kept, by device, inode, size and modification time.
        progress: told after each stretch of a file.
        clock: says what is too young to be remembered.
        wants: whether the file of this folder and path is to be hashed; else its name is enough.

    Raises:
        CatalogueError: there is no such folder, or a file cannot be read or be named in a lock.
    """
    return catalogue_from_roots(
        roots_of(path), name=str(path), state_dir=state_dir, progress=progress, clock=clock, wants=wants
    )


def roots_of(path: Path) -> tuple[Root, ...]:
    """The folders of a models folder, or of ComfyUI's own, in the order in which ComfyUI searches them.

    Raises:
        CatalogueError: there is no such folder.
    """
    if not path.is_dir():
        raise CatalogueError(f"{path}: there is no such folder; name ComfyUI's models folder")
    if (path / "folder_paths.py").is_file() and (path / "models").is_dir():
        path = path / "models"
    try:
        folders = sorted(item for item in path.iterdir() if item.is_dir() and not _is_hidden(item.name))
    except OSError as exc:
        raise _unreadable(exc, str(path)) from exc
    ordered = sorted(folders, key=lambda item: (modern(item.name), _SEARCH_ORDER.get(item.name, 0)))
    return tuple(Root(item.name, item) for item in ordered)


def catalogue_from_roots(
    roots: Iterable[Root],
    *,
    name: str,
    state_dir: Path | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    wants: Callable[[str, str], bool] | None = None,
) -> Catalogue:
    """Hash what lies in these directories; of one name the first directory's file counts, as for ComfyUI.

    Raises:
        CatalogueError: a file cannot be read or be named in a lock.
        TryLater: a file is being written.
    """
    store = HashStore(state_dir, clock=clock)
    try:
        files = _first_of_each_name(file for root in roots for file in _files(root))
        hashed = [file for file in files if wants is None or wants(file.folder, file.relative)]
        meter = Meter(progress, sum(file.path.stat().st_size for file in hashed))
        entries = [_entry(file, store, meter) for file in hashed]
    except OSError as exc:
        raise _unreadable(exc, name) from exc
    except ValueError as exc:
        raise CatalogueError(f"{name}: {exc}") from exc
    finally:
        store.save()
    taken = {file.key for file in hashed}
    others = tuple(f"{file.key[0]}/{file.relative}" for file in files if file.key not in taken)
    return collect(entries).model_copy(update={"others": others})


def _unreadable(exc: OSError, name: str) -> CatalogueError:
    return CatalogueError(f"{exc.filename or name}: cannot be read ({exc.strerror})")


def _entry(file: _File, store: HashStore, meter: Meter) -> CatalogueEntry:
    sha256, size = store.of(file.path, meter)
    return CatalogueEntry(
        folder=file.folder,
        path=file.relative,
        sha256=sha256,
        size=size,
        sources=(str(file.path.absolute()),),
    )


def _first_of_each_name(files: Iterable[_File]) -> list[_File]:
    found: dict[tuple[str, str], _File] = {}
    for file in files:
        known = found.setdefault(file.key, file)
        if known is not file and not known.path.samefile(file.path):
            logger.warning("%s is hidden from ComfyUI by %s", file.path, known.path)
    return list(found.values())


def _files(root: Root) -> Iterator[_File]:
    """Depth first, without recursion. A link that leads back to a folder above itself is not followed."""
    stack = [(root.path, frozenset[Path]())]
    while stack:
        place, above = stack.pop()
        real = place.resolve()
        if real in above:
            continue
        inside = sorted(item for item in place.iterdir() if not _is_hidden(item.name))
        folders = [item for item in inside if item.is_dir()]
        for item in inside:
            if item.is_file() and not _is_passed_over(item.name):
                yield _File(root.folder, item.relative_to(root.path).as_posix(), item)
        stack.extend((item, above | {real}) for item in reversed(folders))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_passed_over(name: str) -> bool:
    return name.lower().endswith(_UNFINISHED) or _is_placeholder(name)


def _is_placeholder(name: str) -> bool:
    return name.startswith("put_") and "." not in name
