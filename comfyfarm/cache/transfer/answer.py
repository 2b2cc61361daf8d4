"""What an answer means: pure judgement of a response's head, against what was asked for and what is known.

Whatever is not exactly the bytes that were asked for is named here, so that no reader has to wonder.
"""

import email.utils
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from comfyfarm.cache.transfer.connection import Head

SNIFF_BYTES = 256
"""So much of a body that is not the file's is looked at, to say what it is."""

_CONTENT_RANGE = re.compile(r"^bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)$", re.ASCII)
_MOST_DIGITS = 18
"""No number that means anything has more."""
_BUSY = frozenset({429, 503})
_AGAIN = frozenset({408, 425, 429})


class Meaning(Enum):
    """What is to be done with an answer."""

    BYTES = "bytes"
    """The body is the file from `start` on to `end`."""
    WHOLE = "whole"
    """The body is the whole file, though a range was asked for."""
    MOVED = "moved"
    REFUSED = "refused"
    """401 or 403: the address may have expired."""
    CHANGED = "changed"
    """Another file than before stands there."""
    AGAIN = "again"
    """May go better in a moment."""
    UNFIT = "unfit"
    """This source does not have the file, or does not give it."""


@dataclass(frozen=True)
class Asked:
    """One request, and what is known of the file by then. `end` is not included."""

    start: int
    end: int
    size: int
    etag: str | None = None
    """Of an earlier answer of this transfer, strong."""
    is_ranged: bool = True
    is_first: bool = True
    """No answer has been good yet."""
    has_ranges: bool = False
    """A range has been answered with that range."""


@dataclass(frozen=True)
class Answer:
    """What one means."""

    meaning: Meaning
    reason: str = ""
    start: int = 0
    end: int = 0
    etag: str | None = None
    location: str = ""
    retry_after_s: float | None = None
    is_busy: bool = False
    """The server asks for fewer requests."""
    is_range: bool = False
    """A range was answered with that range."""
    status: int | None = None
    """Where it has no meaning of its own."""
    is_odd: bool = False
    """The body is short and not the file's: what it is may be seen in it."""


def judge(head: Head, asked: Asked, *, now: float) -> Answer:
    """What an answer means. `now`: Unix time in seconds, for a `Retry-After` that is a date."""
    status, headers = head.status, head.headers
    if status in {200, 206}:
        return _judge_body(status, headers, asked)
    reason = f"answered {status}"
    if status in {301, 302, 303, 307, 308}:
        location = headers.get("location", "")
        return Answer(Meaning.MOVED if location else Meaning.UNFIT, reason, location=location)
    if status in {401, 403}:
        return Answer(Meaning.REFUSED, "access denied; check the credentials")
    if status in {404, 410}:
        return Answer(Meaning.UNFIT, "not there")
    if status == 412:
        return Answer(Meaning.CHANGED, "changed during the transfer")
    if status == 416:
        return _out_of_range(headers, asked)
    if status in _AGAIN or status >= 500:
        wait_s = _retry_after_s(headers.get("retry-after", ""), now)
        return Answer(Meaning.AGAIN, reason, retry_after_s=wait_s, is_busy=status in _BUSY)
    return Answer(Meaning.UNFIT, reason, status=status)


def sniff(body: bytes) -> str:
    """What a body is that is not the file; empty when it is nothing known."""
    text = body.lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer"
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page, perhaps to log in"
    return ""


def is_expired(body: bytes) -> bool:
    """Whether S3 says by 400, and not by 403, that a signature's session token is of no more use."""
    return b"<Code>ExpiredToken</Code>" in body


def strong_etag(etag: str) -> str | None:
    """None for a weak one: it never matches, as If-Match compares strongly (RFC 9110, 13.1.1)."""
    return etag.strip() if etag.strip().startswith('"') else None


def _judge_body(status: int, headers: Mapping[str, str], asked: Asked) -> Answer:
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity"}:
        return Answer(Meaning.UNFIT, "sends the file compressed")
    etag = strong_etag(headers.get("etag", ""))
    if status == 206:
        return _judge_part(headers, asked, etag)
    length = _length(headers)
    if length is not None and length != asked.size:
        return _other_size(length, headers, asked)
    kind = _kind(headers)
    if length is None and kind == "text/html":
        return Answer(Meaning.UNFIT, "sends a web page, perhaps to log in", is_odd=True)
    if _is_other(etag, asked):
        return Answer(Meaning.CHANGED, "changed during the transfer")
    if asked.is_ranged and asked.has_ranges:
        return Answer(Meaning.UNFIT, "answers some ranges with the whole file")
    meaning = Meaning.WHOLE if asked.is_ranged else Meaning.BYTES
    return Answer(meaning, start=0, end=asked.size, etag=etag)


def _judge_part(headers: Mapping[str, str], asked: Asked, etag: str | None) -> Answer:
    found = _CONTENT_RANGE.match(headers.get("content-range", "").strip())
    if found is None or found[1] is None:
        return Answer(Meaning.UNFIT, "answers a range without saying which")
    start, end, total = int(found[1]), int(found[2]) + 1, _number(found[3])
    if total is not None and total != asked.size:
        return _other_size(total, headers, asked)
    if _is_other(etag, asked):
        return Answer(Meaning.CHANGED, "changed during the transfer")
    length = _length(headers)
    if start != asked.start or not start < end <= asked.end or length not in {None, end - start}:
        return Answer(Meaning.UNFIT, "answers another range than was asked for")
    return Answer(Meaning.BYTES, start=start, end=end, etag=etag, is_range=True)


def _out_of_range(headers: Mapping[str, str], asked: Asked) -> Answer:
    found = _CONTENT_RANGE.match(headers.get("content-range", "").strip())
    total = _number(found[3]) if found else None
    if total is not None and total != asked.size:
        return _other_size(total, {}, asked)
    return Answer(Meaning.UNFIT, "answered 416")


def _other_size(found: int, headers: Mapping[str, str], asked: Asked) -> Answer:
    if not asked.is_first:
        return Answer(Meaning.CHANGED, "changed during the transfer")
    kind = _kind(headers)
    return Answer(
        Meaning.UNFIT, f"{found} bytes{kind and f' of {kind}'} instead of {asked.size}", is_odd=True
    )


def _is_other(etag: str | None, asked: Asked) -> bool:
    return None not in {etag, asked.etag} and etag != asked.etag


def _kind(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _length(headers: Mapping[str, str]) -> int | None:
    """Of the body. In chunks its length is not said beforehand (RFC 9112, 6.3)."""
    return None if "transfer-encoding" in headers else _number(headers.get("content-length", ""))


def _number(text: str) -> int | None:
    digits = text.strip()
    return int(digits[:_MOST_DIGITS]) if digits.isascii() and digits.isdecimal() else None


def _retry_after_s(text: str, now: float) -> float | None:
    """Source: RFC 9110, 10.2.3."""
    if (seconds := _number(text)) is not None:
        return float(seconds)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None
