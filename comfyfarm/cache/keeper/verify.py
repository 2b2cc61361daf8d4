"""Read blobs again, and take away those whose bytes are no longer what their name says."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.strange import is_strange, open_regular, refuse_files_for_folders, strange_blobs
from comfyfarm.errors import TryLater

_READ_BYTES = 1 << 20


class Spoiled(BaseModel):
    """A blob that is not what its name says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    reason: str
    quarantined: Path | None
    """Where it lies now; None where it could not be taken away."""


class VerifyReport(BaseModel):
    """What was read, and what was found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checked: NonNegativeInt
    checked_bytes: NonNegativeInt
    spoiled: tuple[Spoiled, ...]
    absent: tuple[str, ...]
    """Asked for, and not here."""


def verify(
    keeper: Keeper, shas: Sequence[str] | None = None, *, on_bytes: Callable[[int], None] = lambda _: None
) -> VerifyReport:
    """Read these blobs, by default all, and quarantine the wrong ones; the next use fetches them anew.

    Args:
        keeper: of the cache.
        shas: SHA-256 of what to read.
        on_bytes: told of bytes as they are read.

    One that cannot be read counts as wrong, and the others are read all the same.

    Raises:
        TransferError: something lies where a folder of the cache goes.
    """
    refuse_files_for_folders(keeper.blobs, shas or ())
    every = _all(keeper) if shas is None else list(dict.fromkeys(shas))
    spoiled, absent, sizes = [], [], []
    for sha in every:
        size = _size(keeper.blobs.path(sha))
        if size is None:
            absent.append(sha)
            continue
        sizes.append(size)
        found = _check(keeper, sha, on_bytes)
        if found is not None:
            spoiled.append(found)
    return VerifyReport(
        checked=len(sizes), checked_bytes=sum(sizes), spoiled=tuple(spoiled),
        absent=tuple(absent) if shas is not None else (),
    )  # fmt: skip


def _all(keeper: Keeper) -> list[str]:
    return sorted({*keeper.look()[0].blobs, *strange_blobs(keeper.blobs)})


def _size(path: Path) -> int | None:
    """Of what lies there, be it a file; None where nothing does."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _check(keeper: Keeper, sha256: str, on_bytes: Callable[[int], None]) -> Spoiled | None:
    path = keeper.blobs.path(sha256)
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            reason = _what_is_wrong(file.fileno(), sha256, on_bytes)
            # Evicted, or healed by another process, while it was read: then it is nobody's business.
            if not reason or not _is_still(path, file.fileno()):
                return None
    except FileNotFoundError:
        return None
    except OSError as exc:
        if not is_strange(path):
            return Spoiled(sha256=sha256, reason=f"it cannot be read: {exc.strerror}", quarantined=None)
        reason = "it is no regular file"
    try:
        return Spoiled(sha256=sha256, reason=reason, quarantined=keeper.quarantine(sha256, reason=reason))
    except TryLater as exc:
        return Spoiled(sha256=sha256, reason=f"{reason}; {exc}", quarantined=None)


def _what_is_wrong(fd: int, sha256: str, on_bytes: Callable[[int], None]) -> str:
    digest, view = hashlib.sha256(), memoryview(bytearray(_READ_BYTES))
    try:
        while count := os.readv(fd, [view]):
            digest.update(view[:count])
            on_bytes(count)
    except OSError as exc:
        return f"it cannot be read: {exc.strerror or exc}"
    # Of use to nobody soon, and others may need the room in memory.
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    found = digest.hexdigest()
    return "" if found == sha256 else f"its {os.fstat(fd).st_size} bytes have the SHA-256 {found}"


def _is_still(path: Path, fd: int) -> bool:
    return os.path.samestat(path.stat(), os.fstat(fd))
