"""One object of a bucket: put in one request, looked at, told from another by the store's own checksums."""

import base64
import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from comfyfarm.cache.places.connections import Body, Shrunk
from comfyfarm.cache.places.place import Mode, PutFile
from comfyfarm.cache.places.s3_calls import Calls, Refused
from comfyfarm.errors import SpoiledFile

_PIECE_BYTES = 1 << 20
_NOT_SO = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED}
CHECKSUM = "x-amz-checksum-sha256"
SPOILED_CODES = {"BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest", "IncompleteBody"}
"""The bytes that came are not those that were signed for: they changed on the way, or in the file."""


class Head(NamedTuple):
    """What a store says of an object."""

    size: int
    checksum: str
    """SHA-256 in base64, with `-<parts>` where it is that of the parts' own; empty where it does not say."""
    claimed_sha256: str
    """What its uploader wrote beside it, in hexadecimal."""


def head(calls: Calls, key: str) -> Head | None:
    """Look at an object; None when there is none.

    Raises:
        Refused: the store does not say.
    """
    try:
        answer = calls.ask("HEAD", key, headers=_asking(calls))
    except Refused as exc:
        if calls.dialect.takes_checksums and exc.status in _NOT_SO:
            # A HEAD has no body that could say which header it is.
            calls.dialect.takes_checksums = False
            try:
                return head(calls, key)
            except Refused:
                calls.dialect.takes_checksums = True  # it was something else
                raise
        if exc.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    size = int(answer.headers.get("content-length", 0))
    return Head(size, answer.headers.get(CHECKSUM, ""), answer.headers.get("x-amz-meta-sha256", ""))


def put(
    calls: Calls, key: str, body: Body, *, sha256: str, mode: Mode, headers: Mapping[str, str]
) -> str | None:
    """Write an object in one request; the checksum that the store says it has, which may be none.

    Returns None where one was there already, under `create`.

    Raises:
        Refused: the store did not take it.
    """
    while True:
        sent = {**headers, "x-amz-meta-sha256": sha256}
        if calls.dialect.takes_checksums:
            sent[CHECKSUM] = to_base64(sha256)
        if mode == "create" and calls.dialect.takes_conditions:
            sent["If-None-Match"] = "*"
        counting, tally = counted(body)
        try:
            answer = calls.ask("PUT", key, headers=sent, body=counting, sha256=sha256, again=tally.take_back)
        except Refused as exc:
            tally.take_back()
            if exc.status == HTTPStatus.PRECONDITION_FAILED and mode == "create":
                return None
            if not calls.dialect.forget(exc):
                raise
            continue
        return answer.headers.get(CHECKSUM, "")


class Tally:
    """Tells of bytes as they go, and takes back what was told of those that must go again."""

    def __init__(self, told: Callable[[int], None]) -> None:
        self._told = told
        self._sum = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Tell of so many bytes, from any thread."""
        with self._lock:
            self._sum += number
        self._told(number)

    def take_back(self) -> None:
        """All that was told so far must go again."""
        with self._lock:
            number, self._sum = self._sum, 0
        if number:
            self._told(-number)


def counted(body: Body) -> tuple[Body, Tally]:
    """The same body, with a tally of its own."""
    if isinstance(body, bytes):
        return body, Tally(lambda _number: None)
    tally = Tally(body.told)
    return replace(body, told=tally.add), tally


def agrees(found: Head, *, size: int, sha256: str, composite: Callable[[], str] | None = None) -> bool | None:
    """Whether the store's own checksum is this file's; None where it says none that can be compared.

    `composite`: works out what the checksum would be that is made of the parts' own.
    """
    if found.size != size:
        return False
    value, _, parts = found.checksum.partition("-")
    if not value:
        return None
    if not parts:
        return value == to_base64(sha256)
    return None if composite is None else found.checksum == composite()


def read_sha256(calls: Calls, key: str, size: int) -> str:
    """Read an object and hash it.

    Raises:
        Refused: it cannot be read, or has another size.
    """
    digest = hashlib.sha256()
    calls.read(key, digest.update, size)
    return digest.hexdigest()


def composite_of(part_sha256: Sequence[str]) -> str:
    """The checksum of an object that went up in parts with these, as S3 says it."""
    joined = hashlib.sha256(b"".join(map(bytes.fromhex, part_sha256))).digest()
    return f"{base64.b64encode(joined).decode()}-{len(part_sha256)}"


def to_base64(sha256: str) -> str:
    """A hexadecimal hash as S3 writes it."""
    return base64.b64encode(bytes.fromhex(sha256)).decode()


def hash_span(fd: int, at: int, length: int, algorithm: str = "sha256") -> str:
    """Hash of a stretch of an open file, in hexadecimal.

    Raises:
        Shrunk: the file ends before.
    """
    digest = hashlib.new(algorithm, usedforsecurity=False)
    piece = memoryview(bytearray(min(_PIECE_BYTES, max(length, 1))))
    end = at + length
    while at < end:
        count = os.preadv(fd, [piece[: end - at]], at)
        if not count:
            raise Shrunk
        digest.update(piece[:count])
        at += count
    return digest.hexdigest()


def spoiled(put_file: PutFile) -> SpoiledFile:
    """The error for a file that is no longer what it was."""
    return SpoiledFile(f"{put_file.file}: no longer the bytes that were recorded for {put_file.name}")


def is_spoiled(path: Path, sha256: str) -> bool:
    """Whether a file is another than the one with this hash by now."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest() != sha256


def _asking(calls: Calls) -> dict[str, str]:
    return {"x-amz-checksum-mode": "ENABLED"} if calls.dialect.takes_checksums else {}
