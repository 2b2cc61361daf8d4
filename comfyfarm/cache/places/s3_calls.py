"""Requests to one bucket: signed, repeated where that helps, their refusals said without addresses."""

import email.utils
import logging
import random
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from comfyfarm.cache.places.connections import Body, Connections, LinkBroken, S3Response
from comfyfarm.cache.places.signing import EMPTY_SHA256, Bucket, Presigned, Signer
from comfyfarm.clock import SystemClock

_log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 8.0
LONGEST_TOLD_WAIT_S = 60.0
"""A server's `Retry-After` is honoured up to this."""
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_AGAIN_CODES = {
    "RequestTimeout",
    "SlowDown",
    "InternalError",
    "OperationAborted",
    "ConditionalRequestConflict",
}
_ODD_CODES = {"InvalidArgument", "InvalidRequest"}
_DENIED = {401, 403}
_CONDITION, _CHECKSUM = "if-none-match", "checksum"


class Refused(Exception):
    """The store did not do it. The text is a few words, without any address."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        """0 where no answer came."""
        self.code = code


class UploadStopped(Exception):
    """Whoever waits for the upload has gone."""


@dataclass
class Dialect:
    """What a store has been seen not to understand, or not to say."""

    takes_checksums: bool = True
    takes_conditions: bool = True
    says_checksums: bool = True

    def forget(self, refused: Refused) -> bool:
        """Whether the same request may be taken with less in it; from now on less is asked.

        R2 and older stores answer `NotImplemented` to headers that they do not know, others `InvalidArgument`
        (B2 with 400), and name the header.
        """
        if self.takes_checksums and _CONDITION not in str(refused) and _is_unknown(refused, _CHECKSUM):
            self.takes_checksums = False
            _log.info("the store does without checksums: %s", refused)
            return True
        return self.forget_conditions(refused)

    def forget_conditions(self, refused: Refused) -> bool:
        """The same, for the condition alone."""
        if not self.takes_conditions or not _is_unknown(refused, _CONDITION):
            return False
        self.takes_conditions = False
        _log.info("the store does without conditions: %s", refused)
        return True


@dataclass
class Calls:
    """To one bucket. Safe in threads."""

    bucket: Bucket
    signer: Signer
    links: Connections
    tries: int = 8
    """How often a request is repeated that failed for something that passes."""
    dialect: Dialect = field(default_factory=Dialect)
    stop: threading.Event = field(default_factory=threading.Event)

    def until(self, stop: threading.Event, *, tries: int) -> "Calls":
        """The same, given up once this is set."""
        return replace(self, stop=stop, tries=tries)

    def ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body = b"",
        sha256: str = EMPTY_SHA256,
        again: Callable[[], None] | None = None,
    ) -> S3Response:
        """One request, repeated on what passes by itself.

        Args:
            method: of HTTP.
            key: of the object; empty for the bucket.
            query: fields of the query.
            headers: besides host and signature.
            body: what is sent.
            sha256: of the body.
            again: called before a repetition.

        Raises:
            Refused: an answer that is no success, or none in so many tries.
            UploadStopped: it was given up meanwhile.
        """
        target = self.bucket.target(key, query)

        def once() -> S3Response:
            return self.links.ask(method, target, self._headers(method, target, headers, sha256), body)

        return self._repeat(once, again)

    def read(self, key: str, take: Callable[[memoryview], None], size: int) -> None:
        """Hand the bytes of an object to `take`; a body that breaks off is gone on with where it broke.

        Raises:
            Refused: it cannot be read, or is not of this size.
            UploadStopped: it was given up meanwhile.
        """
        at, is_whole, target = 0, not size, self.bucket.target(key)

        def taken(data: memoryview) -> None:
            nonlocal at
            at += len(data)
            if at > size:
                raise Refused(0, "", f"holds more than {size} bytes")
            take(data)

        def once() -> S3Response:
            nonlocal is_whole
            start, wanted = at, HTTPStatus.PARTIAL_CONTENT if at else HTTPStatus.OK
            signed = self._headers("GET", target, {"Range": f"bytes={at}-"} if at else {})
            answer, is_whole = self.links.read(target, signed, taken, status=wanted)
            if wanted != answer.status == HTTPStatus.OK:
                raise Refused(answer.status, "", "answers no ranges")
            if not is_whole and at == start:
                raise LinkBroken("the connection broke off")
            return answer

        while not is_whole:  # the count of tries begins anew with each that brought something
            self._repeat(once, None)
        if at != size:
            raise Refused(0, "", f"holds {at} bytes instead of {size}")

    def presign(self, key: str, expires_s: int) -> Presigned:
        """An address of an object for whoever has it, for so many seconds."""
        return self.signer.presign(self.bucket.origin + self.bucket.target(key), expires_s=expires_s)

    def _headers(
        self, method: str, target: str, headers: Mapping[str, str] | None, sha256: str = EMPTY_SHA256
    ) -> dict[str, str]:
        sent = {"Host": self.links.host, "User-Agent": "comfyfarm", **(headers or {})}
        return self.signer.sign(method, self.bucket.origin + target, sent, sha256=sha256)

    def _repeat(self, once: Callable[[], S3Response], again: Callable[[], None] | None) -> S3Response:
        failed, left = 0, self.tries
        while True:
            if self.stop.is_set():
                raise UploadStopped
            wait_s: float | None = None
            try:
                answer = once()
                if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES and not _is_late_error(
                    answer
                ):
                    return answer
                refused, wait_s = _refused(answer), _told_wait(answer.headers.get("retry-after"))
            except LinkBroken as exc:
                if exc.was_kept and left == self.tries and failed < MAX_CONNECTIONS:
                    # An idle connection that the server has closed costs no try.
                    failed += 1
                    _call(again)
                    continue
                refused = Refused(0, "", str(exc))
            left -= 1
            if left < 0 or not _passes(refused):
                raise refused
            wait_s = _jitter(self.tries - left) if wait_s is None else wait_s
            if self.stop.wait(wait_s):
                raise UploadStopped
            _call(again)


def _is_unknown(refused: Refused, header: str) -> bool:
    if refused.code == "NotImplemented" or refused.status == HTTPStatus.NOT_IMPLEMENTED:
        return True
    return refused.code in _ODD_CODES and header in str(refused)


def words_of(answer: S3Response, field_name: str) -> str:
    """What an XML answer says in a field, whatever its name space; empty where it says nothing."""
    found = re.search(rf"<{field_name}>([^<]*)</{field_name}>".encode(), answer.body)
    return found[1].decode(errors="replace").strip() if found else ""


def _is_late_error(answer: S3Response) -> bool:
    # Completing takes long: a store answers 200 at once, and what became of it later.
    return b"<Error>" in answer.body[:4096] or (b"<Error " in answer.body[:4096])


def _refused(answer: S3Response) -> Refused:
    code = re.sub(r"[^A-Za-z0-9]", "", words_of(answer, "Code"))[:64]
    told = words_of(answer, "Message").lower()
    if answer.status in _DENIED:
        words = "access denied; check the credentials" + (f" ({code})" if code else "")
    elif code == "NoSuchBucket":
        words = "no such bucket"
    elif 300 <= answer.status < 400:
        words = f"lies in another region ({code or answer.status}); set AWS_REGION"
    else:
        words = f"answered {answer.status} {code}".rstrip()
        # Not its text, which may hold anything; but which header it is that a store does not know.
        words += next((f" ({name})" for name in (_CONDITION, _CHECKSUM) if name in told), "")
    return Refused(answer.status, code, words)


def _passes(refused: Refused) -> bool:
    is_broken = not refused.status and not refused.code and "TLS" not in str(refused)
    return is_broken or refused.status in _AGAIN or refused.code in _AGAIN_CODES


def _jitter(failures: int) -> float:
    return random.uniform(0, min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**failures))


def _told_wait(text: str | None) -> float | None:
    if not text:
        return None
    if text.strip().isdigit():
        return min(LONGEST_TOLD_WAIT_S, float(text))
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
    return min(LONGEST_TOLD_WAIT_S, max(0.0, until - SystemClock().now()))


def _call(again: Callable[[], None] | None) -> None:
    if again is not None:
        again()
