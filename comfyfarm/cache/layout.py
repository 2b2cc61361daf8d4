"""Blobs under the names that ComfyUI looks for: links in a models folder, or in a view of one lock.

Nothing that is not ours is ever touched: a link of ours points into this cache, or is a hard link to a blob.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.disk import Disk
from comfyfarm.cache.pinned import Pinned, Placed
from comfyfarm.clock import SystemClock
from comfyfarm.errors import ForeignFile, InputError, TryLater, UsageError

_FOREIGN = (
    "not ours, and never overwritten; move them away, or name no models folder when they are the files that "
    "the lock means:"
)
_TOO_LONG = "longer than a name may be on a disk; shorten it in the lock"
_TRIES = 5
_LEFT_AFTER_S = 3600.0
_A_DIGEST = "0" * 64

OnLinks = Callable[[Mapping[Path, Placed]], None]
"""Told which links are about to be placed: who evicts a blob later has to know of them beforehand."""


def link_models(
    models: Iterable[Placed],
    blobs: BlobStore,
    models_dir: Path,
    *,
    hard: bool = False,
    on_links: OnLinks | None = None,
) -> tuple[Path, ...]:
    """Link `<models_dir>/<folder>/<path>` to each model's blob. Safe to repeat; our own older links move on.

    Nothing is linked when anything is in the way. `Keeper.link` does this so that no eviction comes between.

    Args:
        models: files that are in the cache.
        blobs: the cache.
        models_dir: where ComfyUI looks; made if missing.
        hard: hard links instead of symbolic ones; on one file system only.
        on_links: told of all of them before the first is placed.

    Raises:
        ForeignFile: files that are not ours lie where links should go, all of them named.
        InputError: a path leads out of the folder, or two models claim one path.
        TryLater: the folder cannot be written.
    """
    listed = tuple(models)
    wanted = refuse_foreign(listed, blobs, models_dir)
    if on_links is not None:
        on_links(_places(listed, _root(models_dir)))
    for link, blob in wanted.items():
        _link(link, blob, hard=hard, disk=blobs.disk)
    return tuple(wanted)


def is_link_to(link: Path, blob: Path) -> bool:
    """Whether this is a link of ours to this blob, symbolic or hard, be the blob here or not."""
    if link.is_symlink():
        target = Path(os.path.normpath(link.parent / link.readlink()))
        return target == blob or (
            target.name == blob.name and target.parent.resolve() == blob.parent.resolve()
        )
    return _same_file(link, blob)


def waiting_name(link: Path) -> Path:
    """The name that a link has until it is in its place, and keeps if its process dies just then."""
    return link.with_name(f".comfyfarm-{hashlib.sha256(os.fsencode(link.name)).hexdigest()[:16]}")


def refuse_foreign(models: Iterable[Placed], blobs: BlobStore, models_dir: Path) -> Mapping[Path, Path]:
    """Where each model will be linked, and to which blob; asked before anything is fetched.

    Raises:
        ForeignFile: files that are not ours lie there, all of them named.
        InputError: a path leads out of the folder or is too long, or two models claim one path.
        TryLater: the folder cannot be looked at.
    """
    root = _root(models_dir)
    wanted = {link: blobs.path(model.sha256) for link, model in _places(models, root).items()}
    foreign = [link for link, blob in wanted.items() if _is_foreign(link, blob, blobs, root)]
    if foreign:
        lines = [f"  {link}" for link in foreign]
        raise ForeignFile("\n".join([_FOREIGN, *lines]))
    return wanted


def refuse_misplaced(models: Iterable[Pinned], blobs: BlobStore) -> None:
    """Whether the files could be linked in a view at all, for those that have a place; nothing is looked at.

    Raises:
        InputError: a path leads out of the folder or is too long, two models claim one path, or one claims
            a path below another's.
    """
    placed: list[Any] = [
        model for model in models if getattr(model, "folder", "") and getattr(model, "path", "")
    ]
    _places(placed, blobs.root / "views" / _A_DIGEST)


def refuse_hard_links(models: Iterable[Placed], blobs: BlobStore, models_dir: Path) -> None:
    """Whether hard links can be, asked before anything is fetched.

    Raises:
        UsageError: a folder lies on another file system than the cache.
    """
    cache = _device(blobs.root / "sha256")
    for folder in dict.fromkeys(link.parent for link in _places(models, _root(models_dir))):
        if _device(folder) != cache:
            raise UsageError(
                f"{folder}: lies on another file system than the cache {blobs.root}, and hard links cannot "
                "lead there; leave --link hard out, or give a --cache that lies beside it"
            )


def make_view(
    lock_digest: str,
    models: Iterable[Placed],
    blobs: BlobStore,
    *,
    on_links: OnLinks | None = None,
) -> Path:
    """A models folder of one lock inside the cache, for a server that we start; returns where it lies.

    Raises:
        ForeignFile: somebody put files of their own there.
        TryLater: the cache cannot be written.
    """
    view = blobs.root / "views" / lock_digest
    try:
        blobs.disk.make_folder(view)
    except OSError as exc:
        raise TryLater(f"{view}: cannot be made: {exc.strerror or exc}") from exc
    link_models(models, blobs, view, on_links=on_links)
    return view


def extra_model_paths_yaml(view: Path) -> str:
    """Text of the `extra_model_paths.yaml` that shows a view to ComfyUI, before its own folders.

    Source: `load_extra_path_config` in ComfyUI's utils/extra_config.py.
    """
    folders = sorted(path.name for path in view.iterdir() if path.is_dir())
    import yaml

    section = {"base_path": str(view), "is_default": True} | {name: name for name in folders}
    return yaml.safe_dump({"comfyfarm": section}, sort_keys=False, allow_unicode=True)


def write_extra_model_paths(view: Path, disk: Disk) -> Path:
    """Put `extra_model_paths_yaml` beside the view, whole or not at all: a server may read it just now.

    Raises:
        TryLater: the cache cannot be written.
    """
    path, text = view.with_name(f"{view.name}.yaml"), extra_model_paths_yaml(view)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return path
    _sweep_new_ones(path.parent, disk)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fd = disk.open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            disk.write_at(fd, text.encode(), 0, new)
        finally:
            os.close(fd)
        disk.rename(new, path)
    except OSError as exc:
        raise TryLater(f"{path}: cannot be written: {exc.strerror or exc}") from exc
    return path


def _sweep_new_ones(views: Path, disk: Disk) -> None:
    """Remove what processes left that died while they wrote."""
    oldest_s = SystemClock().now() - _LEFT_AFTER_S
    for left in views.glob(".*.yaml.*"):
        with contextlib.suppress(OSError):
            if left.lstat().st_mtime < oldest_s:
                disk.unlink(left)


def _device(folder: Path) -> int:
    """Of the folder, or of the nearest one above it that is there."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.stat().st_dev


def _root(models_dir: Path) -> Path:
    return models_dir.expanduser().absolute()


def _places(models: Iterable[Placed], root: Path) -> dict[Path, Placed]:
    places: dict[Path, Placed] = {}
    for model in models:
        link = root / _inside(model.folder) / _inside(model.path)
        if places.setdefault(link, model).sha256 != model.sha256:
            raise InputError(f"{model.folder}/{model.path}: two files of different content claim this path")
        if len(os.fsencode(link)) > _PATH_MAX_BYTES:
            raise InputError(f"{link.relative_to(root)}: is {_TOO_LONG}")
    for link in places:
        above = next((parent for parent in link.parents if parent in places), None)
        if above is not None:
            raise InputError(
                f"{above.relative_to(root)}: is a file, and {link.relative_to(root)} needs a folder of that "
                "name; rename one of them in the lock"
            )
    return places


_NAME_MAX_BYTES = 255
"""Of one name, on the file systems of Linux."""
_PATH_MAX_BYTES = 4095


def _inside(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in path or "\0" in path:
        raise InputError(f"{path!r}: leads out of the models folder; correct it in the lock")
    if any(len(os.fsencode(part)) > _NAME_MAX_BYTES for part in pure.parts):
        raise InputError(f"{path}: is {_TOO_LONG}")
    return pure


def _is_foreign(link: Path, blob: Path, blobs: BlobStore, root: Path) -> bool:
    try:
        return _is_in_the_way(link, blob, blobs, root)
    except OSError as exc:
        if exc.errno == errno.ENAMETOOLONG:
            raise InputError(f"{link.relative_to(root)}: is {_TOO_LONG}") from exc
        raise TryLater(f"{link}: cannot be looked at: {exc.strerror or exc}") from exc


def _is_in_the_way(link: Path, blob: Path, blobs: BlobStore, root: Path) -> bool:
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
    # One in quarantine was a blob when it was linked.
    candidates = [blob, *blobs.root.glob("sha256/??/*"), *blobs.root.glob("quarantine/*")]
    return any(_same_file(link, each) for each in candidates)


def _same_file(link: Path, blob: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return link.samefile(blob)
    return False


def _link(link: Path, blob: Path, *, hard: bool, disk: Disk) -> None:
    if _is_linked(link, blob, hard=hard):
        return
    new = waiting_name(link)
    try:
        if not link.parent.is_dir():
            disk.make_folder(link.parent)
        _place(new, link, blob, hard=hard, disk=disk)
    except OSError as exc:
        remedy = "; without --link hard they are symbolic" if exc.errno == errno.EXDEV else ""
        raise TryLater(f"{link}: cannot be linked to {blob}: {exc.strerror or exc}{remedy}") from exc
    finally:
        # Left over after a failure, and after replacing one hard link by another to the same file.
        if os.path.lexists(new):
            with contextlib.suppress(OSError):
                disk.unlink(new)


def _place(new: Path, link: Path, blob: Path, *, hard: bool, disk: Disk) -> None:
    make = disk.hardlink if hard else disk.symlink
    for remaining in reversed(range(_TRIES)):
        try:
            make(new, blob)
            disk.rename(new, link)
        except (FileExistsError, FileNotFoundError):
            # The name is a dead process's; or another process has just taken ours for such a one.
            if not remaining:
                raise
            disk.unlink(new)
        else:
            return


def _is_linked(link: Path, blob: Path, *, hard: bool) -> bool:
    if hard:
        return not link.is_symlink() and _same_file(link, blob)
    return link.is_symlink() and link.readlink() == blob
