"""Blobs under the names that ComfyUI looks for: links in a models folder, or in a view of one lock.

Nothing that is not ours is ever touched: a link of ours points into this cache, or is a hard link to a blob.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import yaml

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.pinned import Placed
from comfyfarm.errors import ForeignFile, InputError, TryLater

_FOREIGN = (
    "not ours, and never overwritten; move them away, or name no models folder when they are the files that "
    "the lock means:"
)


def link_models(
    models: Iterable[Placed], blobs: BlobStore, models_dir: Path, *, hard: bool = False
) -> tuple[Path, ...]:
    """Link `<models_dir>/<folder>/<path>` to each model's blob. Safe to repeat; our own older links move on.

    Nothing is linked when anything is in the way.

    Args:
        models: files that are in the cache.
        blobs: the cache.
        models_dir: where ComfyUI looks; made if missing.
        hard: hard links instead of symbolic ones; on one file system only.

    Raises:
        ForeignFile: files that are not ours lie where links should go, all of them named.
        InputError: a path leads out of the folder, or two models claim one path.
        TryLater: the folder cannot be written.
    """
    wanted = refuse_foreign(models, blobs, models_dir)
    for link, blob in wanted.items():
        _link(link, blob, hard=hard)
    return tuple(wanted)


def refuse_foreign(models: Iterable[Placed], blobs: BlobStore, models_dir: Path) -> Mapping[Path, Path]:
    """Where each model will be linked, and to which blob; asked before anything is fetched.

    Raises:
        ForeignFile: files that are not ours lie there, all of them named.
        InputError: a path leads out of the folder, or two models claim one path.
    """
    root = models_dir.expanduser().absolute()
    wanted = _wanted(models, blobs, root)
    foreign = [link for link, blob in wanted.items() if _is_foreign(link, blob, blobs, root)]
    if foreign:
        lines = [f"  {link}" for link in foreign]
        raise ForeignFile("\n".join([_FOREIGN, *lines]))
    return wanted


def make_view(lock_digest: str, models: Iterable[Placed], blobs: BlobStore) -> Path:
    """A models folder of one lock inside the cache, for a server that we start; returns where it lies.

    Raises:
        ForeignFile: somebody put files of their own there.
        TryLater: the cache cannot be written.
    """
    view = blobs.root / "views" / lock_digest
    view.mkdir(parents=True, exist_ok=True)
    link_models(models, blobs, view)
    return view


def extra_model_paths_yaml(view: Path) -> str:
    """Text of the `extra_model_paths.yaml` that shows a view to ComfyUI, before its own folders.

    Source: `load_extra_path_config` in ComfyUI's utils/extra_config.py.
    """
    folders = sorted(path.name for path in view.iterdir() if path.is_dir())
    section = {"base_path": str(view), "is_default": True} | {name: name for name in folders}
    return yaml.safe_dump({"comfyfarm": section}, sort_keys=False, allow_unicode=True)


def _wanted(models: Iterable[Placed], blobs: BlobStore, root: Path) -> dict[Path, Path]:
    wanted: dict[Path, Path] = {}
    for model in models:
        link = root / _inside(model.folder) / _inside(model.path)
        blob = blobs.path(model.sha256)
        if wanted.setdefault(link, blob) != blob:
            raise InputError(f"{model.folder}/{model.path}: two files of different content claim this path")
    return wanted


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path or "\0" in path:
        raise InputError(f"{path!r}: leads out of the models folder; correct it in the lock")
    return pure


def _is_foreign(link: Path, blob: Path, blobs: BlobStore, root: Path) -> bool:
    if any(os.path.lexists(parent) and not parent.is_dir() for parent in _between(link, root)):
        return True
    if link.is_symlink():
        return not _points_into(link, blobs.root)
    return link.exists() and not _is_hard_link(link, blob, blobs)


def _between(link: Path, root: Path) -> list[Path]:
    return [root, *(parent for parent in link.parents if root in parent.parents)]


def _points_into(link: Path, root: Path) -> bool:
    target = link.parent / link.readlink()
    return Path(os.path.normpath(target)).is_relative_to(root) or target.resolve().is_relative_to(
        root.resolve()
    )


def _is_hard_link(link: Path, blob: Path, blobs: BlobStore) -> bool:
    if not link.is_file() or link.stat().st_nlink < 2:
        return False
    candidates = [blob, *blobs.root.glob("sha256/??/*")]
    return any(_same_file(link, each) for each in candidates)


def _same_file(link: Path, blob: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return link.samefile(blob)
    return False


def _link(link: Path, blob: Path, *, hard: bool) -> None:
    if _is_linked(link, blob, hard=hard):
        return
    new = link.with_name(f".comfyfarm-{secrets.token_hex(6)}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        if hard:
            new.hardlink_to(blob)
        else:
            new.symlink_to(blob)
        new.replace(link)
    except OSError as exc:
        remedy = "; without --link hard they are symbolic" if exc.errno == errno.EXDEV else ""
        raise TryLater(f"{link}: cannot be linked to {blob}: {exc.strerror}{remedy}") from exc
    finally:
        # Left over after a failure, and after replacing one hard link by another to the same file.
        with contextlib.suppress(OSError):
            new.unlink()


def _is_linked(link: Path, blob: Path, *, hard: bool) -> bool:
    if hard:
        return not link.is_symlink() and _same_file(link, blob)
    return link.is_symlink() and link.readlink() == blob
