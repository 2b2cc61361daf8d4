"""What an answer means."""

from dataclasses import replace

import pytest

from comfyfarm.cache.transfer.answer import Asked, Meaning, is_expired, judge, sniff
from comfyfarm.cache.transfer.connection import Head

_ASKED = Asked(100, 200, 1000)
_PART = {"content-range": "bytes 100-199/1000", "content-length": "100", "etag": '"a"'}
_LATER = replace(_ASKED, etag='"a"', is_first=False, has_ranges=True)


def test_the_range_that_was_asked_for_is_taken() -> None:
    answer = judge(Head(206, _PART), _ASKED, now=0)

    assert (answer.meaning, answer.start, answer.end, answer.etag) == (Meaning.BYTES, 100, 200, '"a"')
    assert answer.is_range


def test_a_total_that_the_server_does_not_know_is_no_fault() -> None:
    answer = judge(Head(206, _PART | {"content-range": "bytes 100-199/*"}), _ASKED, now=0)

    assert answer.meaning is Meaning.BYTES


@pytest.mark.parametrize(
    ("headers", "meaning"),
    [
        ({"content-range": "bytes 100-149/1000", "content-length": "50"}, Meaning.BYTES),
        ({"content-range": "bytes 101-199/1000", "content-length": "99"}, Meaning.UNFIT),
        ({"content-range": "bytes 100-200/1000", "content-length": "101"}, Meaning.UNFIT),
        ({"content-range": "bytes 100-199/1000", "content-length": "99"}, Meaning.UNFIT),
        ({"content-range": "bytes 100-99/1000"}, Meaning.UNFIT),
        ({"content-range": "bytes */1000"}, Meaning.UNFIT),
        ({"content-range": "lines 1-2/3"}, Meaning.UNFIT),
        ({"content-range": "bytes 100-199/999"}, Meaning.UNFIT),
        ({"content-range": f"bytes 100-199/{'9' * 5000}"}, Meaning.UNFIT),
        ({"content-length": "9" * 5000}, Meaning.UNFIT),
    ],
)
def test_another_range_is_unfit_and_a_shorter_one_is_taken(headers: dict[str, str], meaning: Meaning) -> None:
    assert judge(Head(206, headers), _ASKED, now=0).meaning is meaning


@pytest.mark.parametrize(
    "head",
    [
        Head(412, {}),
        Head(206, _PART | {"etag": '"b"'}),
        Head(206, _PART | {"content-range": "bytes 100-199/1001"}),
        Head(416, {"content-range": "bytes */50"}),
    ],
)
def test_another_file_in_mid_transfer_is_a_change(head: Head) -> None:
    assert judge(head, _LATER, now=0).meaning is Meaning.CHANGED


def test_a_weak_or_missing_etag_says_nothing() -> None:
    for etag in ('W/"b"', ""):
        answer = judge(Head(206, _PART | {"etag": etag}), _LATER, now=0)
        assert (answer.meaning, answer.etag) == (Meaning.BYTES, None)


def test_the_whole_file_is_taken_only_before_any_range_was() -> None:
    whole = Head(200, {"content-length": "1000"})

    assert judge(whole, _ASKED, now=0).meaning is Meaning.WHOLE
    assert judge(whole, _LATER, now=0).meaning is Meaning.UNFIT
    assert judge(whole, replace(_ASKED, is_ranged=False), now=0).meaning is Meaning.BYTES


def test_a_web_page_of_unknown_length_is_no_file() -> None:
    page = Head(200, {"content-type": "text/html; charset=utf-8"})

    answer = judge(page, _ASKED, now=0)

    assert (answer.meaning, answer.reason) == (Meaning.UNFIT, "sends a web page, perhaps to log in")


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (302, Meaning.MOVED),
        (401, Meaning.REFUSED),
        (403, Meaning.REFUSED),
        (404, Meaning.UNFIT),
        (410, Meaning.UNFIT),
        (204, Meaning.UNFIT),
        (408, Meaning.AGAIN),
        (425, Meaning.AGAIN),
        (429, Meaning.AGAIN),
        (500, Meaning.AGAIN),
        (503, Meaning.AGAIN),
    ],
)
def test_a_status_has_its_meaning(status: int, meaning: Meaning) -> None:
    assert judge(Head(status, {"location": "/x"}), _ASKED, now=0).meaning is meaning


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("9" * 5000, 10.0**18 - 1),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert judge(Head(503, {"retry-after": text}), _ASKED, now=10).retry_after_s == seconds


def test_an_expired_session_is_told_from_other_bad_requests() -> None:
    said = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>The provided token has expired.</Message>"

    assert is_expired(said % b"ExpiredToken")
    assert not any(is_expired(said % code) for code in (b"RequestTimeTooSkewed", b"InvalidAccessKeyId"))


def test_only_a_busy_server_asks_for_fewer_requests() -> None:
    busy = {status for status in (408, 429, 500, 502, 503) if judge(Head(status, {}), _ASKED, now=0).is_busy}

    assert busy == {429, 503}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
        (b"\r\n<!DOCTYPE HTML>", "a web page, perhaps to log in"),
        (b"<HTML>", "a web page, perhaps to log in"),
        (b"\x00\x01", ""),
    ],
)
def test_a_body_that_is_not_the_file_is_known_by_its_begin(body: bytes, name: str) -> None:
    assert sniff(body) == name
