"""Place links so that evicting knows of them, and cannot come between."""

import contextlib
import errno
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.cache_lock import READ_ONLY, cache_lock, unwritable
from comfyfarm.cache.keeper.index import Index
from comfyfarm.cache.keeper.known import Link, write_links
from comfyfarm.cache.layout import link_models, make_view
from comfyfarm.cache.pinned import Pinned, Placed
from comfyfarm.errors import TryLater

_log = logging.getLogger(__name__)

NAMES = ".names"
"""Below it nothing ever lies: a name that is known without a link is written as a link there."""

_NO_WRITING = READ_ONLY | {errno.ENOSPC, errno.EDQUOT}


def place_links(
    models: Sequence[Placed], models_dir: Path, blobs: BlobStore, *, index: Index, hard: bool
) -> tuple[Path, ...]:
    """`link_models`, with each link in the index before it is in its place.

    Raises:
        ForeignFile, InputError: as `link_models`.
        TryLater: a folder cannot be written.
    """
    with _lock_if_writable(blobs):
        return link_models(
            models, blobs, models_dir, hard=hard, on_links=lambda links: _record(links, blobs, index)
        )


def place_view(lock_digest: str, models: Sequence[Placed], blobs: BlobStore, *, index: Index) -> Path:
    """`make_view`, likewise."""
    with _lock_if_writable(blobs):
        return make_view(lock_digest, models, blobs, on_links=lambda links: _record(links, blobs, index))


def note_names(models: Sequence[Pinned], root: Path, index: Index) -> None:
    """Have the index know `folder/path` of those that have one, before any link of theirs is placed.

    Raises:
        OSError: it cannot be written.
    """
    rows = [
        (model.sha256, Link(root / NAMES / folder / path, folder, path))
        for model in models
        if (folder := getattr(model, "folder", "")) and (path := getattr(model, "path", ""))
    ]
    known = index.read().links
    fresh = [row for row in rows if row[1].title not in {link.title for link in known.get(row[0], ())}]
    if fresh:
        index.change(lambda db: write_links(db, fresh))


@contextlib.contextmanager
def _lock_if_writable(blobs: BlobStore) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(cache_lock(blobs.root, disk=blobs.disk))
        except OSError as exc:
            if exc.errno not in _NO_WRITING:
                raise TryLater(unwritable(blobs.root, exc)) from exc
            # Nobody can evict here either.
            _log.debug("linking without the lock: %s", exc)
        yield


def _record(links: Mapping[Path, Placed], blobs: BlobStore, index: Index) -> None:
    rows = [(model.sha256, Link(path, model.folder, model.path)) for path, model in links.items()]
    try:
        index.change(lambda db: write_links(db, rows))
    except OSError as exc:
        if exc.errno not in _NO_WRITING:
            raise TryLater(unwritable(blobs.root, exc)) from exc
        level = logging.DEBUG if exc.errno in READ_ONLY else logging.WARNING
        _log.log(level, "links are not noted: %s", exc)
