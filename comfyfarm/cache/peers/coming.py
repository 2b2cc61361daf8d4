"""What is on its way into a cache, as `.partial/<sha>/` tells it. Nothing there is changed."""

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.held_folder import is_held
from comfyfarm.cache.transfer.journal import parse


class Coming(NamedTuple):
    """A file that a living process of this host is fetching."""

    durable_bytes: int
    """Of it, at least: the journal lags behind."""
    moved_ns: int
    """When bytes last came; to be compared with an earlier one and with nothing else."""


def coming(blobs: BlobStore, sha256: str) -> Coming | None:
    """How far the file is; None when nobody fetches it here."""
    folder = _partial(blobs) / sha256
    if not is_held(folder):
        return None
    moved_ns = 0
    with contextlib.suppress(OSError):
        moved_ns = (folder / "data").stat().st_mtime_ns
    return Coming(_durable_bytes(folder / "journal"), moved_ns)


def is_fetching(blobs: BlobStore) -> bool:
    """Whether any file is on its way."""
    try:
        return any(map(is_held, _partial(blobs).iterdir()))
    except OSError:
        return False


def _partial(blobs: BlobStore) -> Path:
    return blobs.root / ".partial"


def _durable_bytes(journal: Path) -> int:
    try:
        text = journal.read_bytes()
        size = json.loads(text.partition(b"\n")[0])["size"]
        return parse(text, size).here.here_bytes()
    except (OSError, ValueError, KeyError, TypeError):  # just being made, or torn
        return 0
