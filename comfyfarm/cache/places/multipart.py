"""A large file into a bucket, in parts of which several go at once; one that was broken off is gone on with.

Each part is signed with its SHA-256 and carries it as a checksum where the store takes one. Two uploads of
one file at once share their parts or come one after the other: either way one object, and no error.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from xml.sax.saxutils import escape, unescape

from comfyfarm.cache.pinned import PART_BYTES
from comfyfarm.cache.places.connections import FileSpan, S3Response
from comfyfarm.cache.places.multipart_listing import Listing, Part, Unfinished, list_parts, list_uploads
from comfyfarm.cache.places.place import Guard, Mode, PutFile
from comfyfarm.cache.places.s3_calls import Calls, Refused, words_of
from comfyfarm.cache.places.s3_objects import (
    CHECKSUM,
    SPOILED_CODES,
    composite_of,
    counted,
    hash_span,
    spoiled,
    to_base64,
)
from comfyfarm.cache.places.threads import in_threads

_log = logging.getLogger(__name__)

MAX_PARTS = 10_000
PARTS_AT_ONCE = 6
_ODD = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED}
BEGINNINGS = 3
"""Another uploader may end or abort the upload that we share: then the next is begun, so often."""


_ENDED = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}


class OtherEnded(Exception):
    """The upload is no longer there: whoever shared it has completed it, or given it up."""


class PartsUpload:
    """One upload of one file."""

    def __init__(
        self,
        calls: Calls,
        key: str,
        put: PutFile,
        fd: int,
        *,
        mode: Mode,
        part_sha256: tuple[str, ...],
        headers: Mapping[str, str],
        told: Callable[[int], None],
        guard: Guard,
        may_resume: bool,
    ) -> None:
        self._calls, self._key, self._put, self._fd, self._mode = calls, key, put, fd, mode
        self._headers, self._told, self._guard = dict(headers), told, guard
        self.part_bytes = PART_BYTES * max(1, -(-put.size // (PART_BYTES * MAX_PARTS)))
        self.count = -(-put.size // self.part_bytes)
        known = part_sha256 if self.part_bytes == PART_BYTES and len(part_sha256) == self.count else ()
        self._is_known = bool(known)
        self._sha256: dict[int, str] = dict(enumerate(known, 1))
        self._etags: dict[int, str] = {}
        self._upload_id = ""
        self._may_resume, self.is_resumed = may_resume, False
        self._others: list[Unfinished] = []

    def run(self) -> str | None:
        """Send what is missing and complete; the checksum that the store says it has, which may be none.

        None where another was there first, under `create`.

        Raises:
            Refused: the store did not take it.
            SpoiledFile: the file is not the one that is named.
            OtherEnded: whoever shared the upload has ended it.
        """
        found = self._find()
        works = [partial(self._bring, number, found.get(number)) for number in range(1, self.count + 1)]
        try:
            # The whole is hashed beside the parts, unless their own hashes came with it.
            in_threads([*([] if self._is_known else [self._check_whole]), *works], at_once=PARTS_AT_ONCE)
            self._guard()
            return self._complete()
        except Refused as exc:
            if self._is_ended(exc):
                raise OtherEnded from None
            raise

    def _is_ended(self, refused: Refused) -> bool:
        if refused.code in _ENDED:
            return True
        if refused.status == HTTPStatus.NOT_FOUND:
            return refused.code != "NoSuchBucket"
        # Begun in another way than ours, which the store tells of only now.
        is_odd = refused.status in _ODD and refused.code not in SPOILED_CODES
        return self.is_resumed and is_odd

    def abort(self) -> None:
        """Give the upload up, if one was begun."""
        if self._upload_id:
            abort(self._calls, self._key, self._upload_id)
            self._upload_id = ""

    def composite(self) -> str:
        """The checksum that the object will have."""
        return composite_of([self._hash(number) for number in range(1, self.count + 1)])

    def _find(self) -> dict[int, Part]:
        """Go on with an upload that was left, or begin one; the parts that are there."""
        self._others = self._left()
        for one in self._others if self._may_resume else ():
            with contextlib.suppress(Refused):
                listed = list_parts(self._calls, self._key, one.upload_id)
                if self._fits(listed):
                    self._upload_id = one.upload_id
                    self.is_resumed = True
                    return listed.parts
        self._upload_id = self._begin()
        return {}

    def _left(self) -> list[Unfinished]:
        """Unfinished uploads of this key, the youngest first."""
        try:
            left = [one for one in list_uploads(self._calls, self._key) if one.key == self._key]
        except Refused as exc:
            _log.info("unfinished uploads are not listed: %s", exc)
            return []
        return sorted(left, key=lambda one: one.begun, reverse=True)

    def _fits(self, listed: Listing) -> bool:
        """Whether an upload was begun as ours would be: with our kind of checksum, in parts as large.

        Some stores do not say which kind: where it is another, they refuse our parts, and we begin anew.
        """
        kinds = {"", "SHA256"} if self._calls.dialect.takes_checksums else {""}
        return (
            bool(listed.parts)
            and listed.algorithm in kinds
            and all(
                number <= self.count and part.size == self._length(number)
                for number, part in listed.parts.items()
            )
        )

    def _begin(self) -> str:
        while True:
            headers = {**self._headers, "x-amz-meta-sha256": self._put.sha256}
            if self._calls.dialect.takes_checksums:
                headers["x-amz-checksum-algorithm"] = "SHA256"
            try:
                answer = self._calls.ask("POST", self._key, {"uploads": ""}, headers=headers)
            except Refused as exc:
                if not self._calls.dialect.forget(exc):
                    raise
                continue
            return unescape(words_of(answer, "UploadId"))

    def _bring(self, number: int, part: Part | None) -> None:
        if part is not None and self._is_ours(number, part):
            self._etags[number] = part.etag
            self._told(self._length(number))
            return
        self._guard()
        self._etags[number] = self._send(number)

    def _is_ours(self, number: int, part: Part) -> bool:
        if part.size != self._length(number):
            return False
        if part.checksum:
            return part.checksum == to_base64(self._hash(number))
        at = (number - 1) * self.part_bytes
        return part.etag.strip('"') == hash_span(self._fd, at, part.size, "md5")

    def _send(self, number: int) -> str:
        sha256 = self._hash(number)
        query = {"partNumber": str(number), "uploadId": self._upload_id}
        at = (number - 1) * self.part_bytes
        body, tally = counted(FileSpan(self._fd, at, self._length(number), self._told))
        while True:
            headers = {CHECKSUM: to_base64(sha256)} if self._calls.dialect.takes_checksums else {}
            try:
                answer = self._calls.ask(
                    "PUT", self._key, query, headers=headers, body=body, sha256=sha256, again=tally.take_back
                )
            except Refused as exc:
                tally.take_back()
                if headers and not self.is_resumed and self._calls.dialect.forget(exc):
                    continue
                raise
            return answer.headers.get("etag", "")

    def _complete(self) -> str | None:
        parts = "".join(map(self._part_xml, range(1, self.count + 1)))
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        body = f'<CompleteMultipartUpload xmlns="{space}">{parts}</CompleteMultipartUpload>'.encode()
        try:
            answer = self._ask_to_complete(body)
        except Refused as exc:
            if exc.status == HTTPStatus.PRECONDITION_FAILED and self._mode == "create":
                self.abort()
                return None
            raise
        self._drop_others()
        return unescape(words_of(answer, "ChecksumSHA256")) or answer.headers.get(CHECKSUM, "")

    def _drop_others(self) -> None:
        """Give up what others have begun of the same bytes: they find the object, and are content."""
        others = self._others if self._mode == "create" else []
        for one in others:
            if one.upload_id != self._upload_id:
                with contextlib.suppress(Refused):
                    abort(self._calls, self._key, one.upload_id)
        self._upload_id = ""

    def _ask_to_complete(self, body: bytes) -> S3Response:
        sha256 = hashlib.sha256(body).hexdigest()
        while True:
            headers = {"Content-Type": "application/xml"}
            if self._mode == "create" and self._calls.dialect.takes_conditions:
                headers["If-None-Match"] = "*"
            query = {"uploadId": self._upload_id}
            try:
                return self._calls.ask("POST", self._key, query, headers=headers, body=body, sha256=sha256)
            except Refused as exc:
                if "If-None-Match" not in headers or not self._calls.dialect.forget_conditions(exc):
                    raise

    def _part_xml(self, number: int) -> str:
        checksum = ""
        if self._calls.dialect.takes_checksums:
            checksum = f"<ChecksumSHA256>{to_base64(self._hash(number))}</ChecksumSHA256>"
        etag = escape(self._etags[number], {'"': "&quot;"})
        return f"<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{checksum}</Part>"

    def _hash(self, number: int) -> str:
        found = self._sha256.get(number)
        if found is None:
            found = hash_span(self._fd, (number - 1) * self.part_bytes, self._length(number))
            self._sha256[number] = found
        return found

    def _length(self, number: int) -> int:
        return min(self.part_bytes, self._put.size - (number - 1) * self.part_bytes)

    def _check_whole(self) -> None:
        if hash_span(self._fd, 0, self._put.size) != self._put.sha256:
            raise spoiled(self._put)


def abort(calls: Calls, key: str, upload_id: str) -> None:
    """Give up an unfinished upload. One that is not there is as good as given up.

    Raises:
        Refused: the store did not do it.
    """
    try:
        calls.ask("DELETE", key, {"uploadId": upload_id})
    except Refused as exc:
        if exc.status != HTTPStatus.NOT_FOUND:
            raise
