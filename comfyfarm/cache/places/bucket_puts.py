"""A file into a bucket: whether it must go, by which of the two ways, and whether the right bytes arrived."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.cache.places.connections import FileSpan, Shrunk
from comfyfarm.cache.places.multipart import BEGINNINGS, OtherEnded, PartsUpload
from comfyfarm.cache.places.place import Guard, Mode, PutFile
from comfyfarm.cache.places.s3_calls import Calls, Refused
from comfyfarm.cache.places.s3_objects import (
    SPOILED_CODES,
    Head,
    Tally,
    agrees,
    composite_of,
    hash_span,
    head,
    is_spoiled,
    put,
    read_sha256,
    spoiled,
    to_base64,
)
from comfyfarm.errors import SpoiledFile, StoreError

SMALL_BYTES = PART_BYTES
"""Up to this size a file goes up in one request."""
SENDINGS = 3
"""Of bytes that changed on the way, while those in the file did not."""


@dataclass(frozen=True)
class PutTarget:
    """To one key."""

    calls: Calls
    key: str
    headers: Mapping[str, str]
    told: Callable[[int], None]
    guard: Guard


def put_bytes(target: PutTarget, data: bytes, *, is_absent: bool) -> None:
    """Write a small object. `is_absent`: nothing is known to lie there that might be the same.

    Raises:
        Refused: the store did not take it.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    found = None if is_absent else head(target.calls, target.key)
    if found is None or not _is_same(found, len(data), sha256, None):
        said = put(target.calls, target.key, data, sha256=sha256, mode="overwrite", headers=target.headers)
        _verify(target, len(data), {to_base64(sha256)}, said or "", sha256)


def put_file(
    target: PutTarget,
    file: PutFile,
    *,
    mode: Mode,
    part_sha256: tuple[str, ...] = (),
    is_absent: bool = False,
) -> bool:
    """Upload a file unless it is there; whether it had to be. `is_absent`: nothing lies there, as is known.

    Raises:
        Refused: the store did not take it.
        StoreError: the file cannot be read.
        SpoiledFile: it is not the one that is named.
    """
    with _opened(file) as fd:
        found = None if is_absent else head(target.calls, target.key)
        if found is not None:
            if mode == "create" and found.size == file.size:
                return False
            if mode == "overwrite" and _is_same(found, file.size, file.sha256, partial(_composite, file, fd)):
                return False
            mode = "overwrite"  # under `create` it is a copy that is not whole
        if file.size <= SMALL_BYTES:
            return _put_one(target, file, fd, mode=mode)
        return _put_parts(target, file, fd, mode=mode, part_sha256=part_sha256)


def _put_one(target: PutTarget, file: PutFile, fd: int, *, mode: Mode) -> bool:
    body = FileSpan(fd, 0, file.size, target.told)
    said = _sent(
        file,
        lambda: put(target.calls, target.key, body, sha256=file.sha256, mode=mode, headers=target.headers),
    )
    if said is None:
        _check_other(target, file, None)
        return False
    _verify(target, file.size, {to_base64(file.sha256)}, said, file.sha256)
    return True


def _put_parts(
    target: PutTarget, file: PutFile, fd: int, *, mode: Mode, part_sha256: tuple[str, ...]
) -> bool:
    for beginning in range(BEGINNINGS):
        tally = Tally(target.told)
        upload = PartsUpload(
            target.calls,
            target.key,
            file,
            fd,
            mode=mode,
            part_sha256=part_sha256,
            headers=target.headers,
            told=tally.add,
            guard=target.guard,
            may_resume=not beginning,
        )
        try:
            said = _sent(file, upload.run, tally.take_back)
        except OtherEnded:
            tally.take_back()
            if not upload.is_resumed:  # else it is somebody else's, who may be at it
                with contextlib.suppress(Refused):
                    upload.abort()
            found = head(target.calls, target.key)
            if found is not None and _is_same(found, file.size, file.sha256, upload.composite):
                return False
            continue
        except SpoiledFile:
            with contextlib.suppress(Refused):
                upload.abort()
            raise
        if said is None:
            tally.take_back()
            _check_other(target, file, upload.composite)
            return False
        _verify(target, file.size, {to_base64(file.sha256), upload.composite()}, said, file.sha256)
        return True
    raise Refused(0, "", "somebody else keeps ending the upload")


def _sent(
    file: PutFile, send: Callable[[], str | None], again: Callable[[], None] = lambda: None
) -> str | None:
    """Send; bytes that changed on the way go again, those that changed in the file end it."""
    for left in reversed(range(SENDINGS)):
        try:
            return send()
        except Shrunk:
            raise spoiled(file) from None
        except Refused as exc:
            if exc.code not in SPOILED_CODES:
                raise
            if is_spoiled(file.file, file.sha256):
                raise spoiled(file) from None
            if not left:
                raise
            again()
    raise AssertionError


def _verify(target: PutTarget, size: int, expected: set[str], said: str, sha256: str) -> None:
    """Compare what the store has: by the checksum it says, else by reading it."""
    dialect = target.calls.dialect
    if not said and dialect.says_checksums:
        found = head(target.calls, target.key)
        said = found.checksum if found is not None and found.size == size else ""
        dialect.says_checksums = bool(said)
    if said in expected or (not said and read_sha256(target.calls, target.key, size) == sha256):
        return
    target.calls.ask("DELETE", target.key)
    raise Refused(0, "", "other bytes arrived than were sent; they are removed")


def _check_other(target: PutTarget, file: PutFile, composite: Callable[[], str] | None) -> None:
    """Another upload was first: it is to be of the same file."""
    found = head(target.calls, target.key)
    if found is None or agrees(found, size=file.size, sha256=file.sha256, composite=composite) is False:
        raise Refused(0, "", "something else lies there by now")


def _is_same(found: Head, size: int, sha256: str, composite: Callable[[], str] | None) -> bool:
    """Whether what lies there is the file; where the store says no checksum, its uploader's word counts.

    That was compared when it was written.
    """
    if found.size != size:
        return False
    answer = agrees(found, size=size, sha256=sha256, composite=composite)
    return found.claimed_sha256 == sha256 if answer is None else answer


def _composite(file: PutFile, fd: int) -> str:
    starts = range(0, file.size, PART_BYTES)
    return composite_of([hash_span(fd, at, min(PART_BYTES, file.size - at)) for at in starts])


@contextmanager
def _opened(file: PutFile) -> Iterator[int]:
    try:
        fd = os.open(file.file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_size != file.size:
                raise spoiled(file)
            yield fd
        finally:
            os.close(fd)
    except OSError as exc:
        raise StoreError(f"{file.file}: {exc.strerror or exc}") from exc
