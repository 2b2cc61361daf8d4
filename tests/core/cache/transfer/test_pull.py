"""The engine against a real server: right bytes after a fault that passes, a named error after another."""

import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.source import SourceFailed, Stopped

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Act, Ask, Faulty, Road, Source

MIB = 1 << 20


def test_a_file_comes_in_ranges_each_asked_for_once(faulty: "Faulty", road: "Road", matter: bytes) -> None:
    assert road.bring(faulty.url, len(matter)) == matter

    assert faulty.asks[0].start == 0
    assert Counter(ask.start for ask in faulty.asks) == Counter(range(0, len(matter), MIB))
    assert faulty.sent_bytes == len(matter) == sum(road.counted)
    assert 1 < faulty.connections <= 4


def test_no_request_comes_before_the_first_part_and_later_ones_name_its_etag(
    faulty: "Faulty", road: "Road", matter: bytes
) -> None:
    road.bring(faulty.url, len(matter))

    assert faulty.asks[0].headers["Range"] == f"bytes=0-{MIB - 1}"
    assert "If-Match" not in faulty.asks[0].headers
    assert {ask.headers.get("If-Match") for ask in faulty.asks[1:]} == {'"v1"'}
    assert {ask.headers.get("Accept-Encoding") for ask in faulty.asks} == {"identity"}


def test_a_weak_etag_is_not_asked_for(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(etag='W/"v1"')

    assert road.bring(faulty.url, len(matter)) == matter
    assert not any("If-Match" in ask.headers for ask in faulty.asks)


def test_a_small_file_takes_one_request_without_a_range(faulty: "Faulty", road: "Road") -> None:
    faulty.data = b"few bytes"

    assert road.bring(faulty.url, 9) == b"few bytes"
    assert [ask.is_ranged for ask in faulty.asks] == [False]


def test_one_connection_is_kept_alive_for_all_parts(faulty: "Faulty", road: "Road", matter: bytes) -> None:
    assert road.bring(faulty.url, len(matter), connections=1) == matter
    assert (faulty.connections, len(faulty.asks)) == (1, 6)


def test_a_connection_that_the_server_closes_between_answers_costs_nothing(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(ending="close")  # without having said so

    assert road.bring(faulty.url, len(matter), connections=1) == matter
    assert faulty.connections == len(faulty.asks)
    # What was asked for ahead is lost, once, and may take the end of the body before it along.
    assert 6 <= len(faulty.asks) <= 7


@pytest.mark.parametrize("ending", ["reset", "close", "hold"])
def test_a_body_that_breaks_goes_on_at_its_last_good_byte(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], ending: str
) -> None:
    faulty.act = lambda ask: act(sends=300_001, ending=ending) if ask.nth == 2 else act()

    assert road.bring(faulty.url, len(matter)) == matter

    at = faulty.asks[1].start
    if ending != "reset":  # which takes away what the client had not read yet
        assert at + 300_001 in {ask.start for ask in faulty.asks}
        assert faulty.sent_bytes == len(matter)
    assert len(matter) <= faulty.sent_bytes <= len(matter) + 300_001


@pytest.mark.parametrize("ending", ["reset", "close"])
def test_every_third_body_may_break(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], ending: str
) -> None:
    faulty.act = lambda ask: act(sends=200_000, ending=ending) if ask.nth % 3 == 0 else act()

    assert road.bring(faulty.url, len(matter)) == matter
    broken = sum(ask.nth % 3 == 0 for ask in faulty.asks)
    assert faulty.sent_bytes <= len(matter) + broken * 200_000


def test_a_short_answer_is_taken_and_the_rest_asked_for(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(end=min(ask.end, ask.start + 700_000))

    assert road.bring(faulty.url, len(matter)) == matter
    assert faulty.sent_bytes == len(matter)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_an_answer_that_may_pass_is_asked_for_again(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], status: int
) -> None:
    faulty.act = lambda ask: act(status=status, body=b"busy") if ask.nth % 4 == 1 else act()

    assert road.bring(faulty.url, len(matter)) == matter
    assert faulty.sent_bytes - len(matter) == 4 * sum(ask.nth % 4 == 1 for ask in faulty.asks)


def test_retry_after_is_honoured(faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]) -> None:
    at: list[float] = []

    def answer(ask: "Ask") -> "Act":
        at.append(time.monotonic())
        return act(status=503, body=b"", headers={"Retry-After": "1"}) if ask.nth == 1 else act()

    faulty.act = answer

    assert road.bring(faulty.url, len(matter)) == matter
    assert at[1] - at[0] >= 1


def test_no_connection_asks_for_more_before_the_time_that_a_busy_server_names(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    at: dict[int, float] = {}

    def answer(ask: "Ask") -> "Act":
        at[ask.nth] = time.monotonic()
        busy = act(status=429, body=b"", headers={"Retry-After": "1"})
        # The first part is done while the others wait: it would be the next to ask.
        return busy if 2 <= ask.nth <= 4 else act(rate=3e6 if ask.nth == 1 else None)

    faulty.act = answer

    assert road.bring(faulty.url, len(matter)) == matter
    assert min(at[nth] for nth in at if nth > 4) - at[2] >= 1


def test_a_source_that_asks_for_an_hour_is_left_for_the_next(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(status=503, body=b"", headers={"Retry-After": "3600"})

    with pytest.raises(SourceFailed, match=r"answered 503, and asks to wait for longer than 60 s"):
        road.bring(faulty.url, len(matter))
    assert len(faulty.asks) == 1


def test_a_source_that_stays_at_fault_is_given_up(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(status=500, body=b"")

    with pytest.raises(SourceFailed) as caught:
        road.bring(faulty.url, len(matter))

    assert (caught.value.reason, caught.value.address) == ("answered 500", "http://somewhere/m")
    assert len(faulty.asks) == road.limits.tries


def test_nobody_at_the_address_is_named(faulty: "Faulty", road: "Road", matter: bytes) -> None:
    with pytest.raises(SourceFailed, match="cannot be reached"):
        road.bring("http://127.0.0.1:9/m", len(matter))


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ({"status": 404, "body": b""}, "not there"),
        ({"status": 410, "body": b""}, "not there"),
        ({"status": 401, "body": b""}, "access denied; check the credentials"),
        ({"status": 403, "body": b""}, "access denied; check the credentials"),
        ({"status": 400, "body": b""}, "answered 400"),
        ({"status": 416, "body": b"", "headers": {"Content-Range": "bytes */7"}}, "7 bytes instead of"),
        ({"shift": MIB}, "answers another range than was asked for"),
        ({"headers": {"Content-Range": "bytes 0-1048575/99999999"}}, "99999999 bytes of application/octet"),
        ({"headers": {"Content-Range": "nonsense"}}, "answers a range without saying which"),
        ({"headers": {"Content-Encoding": "gzip"}}, "sends the file compressed"),
        ({"status": 302, "body": b"", "headers": {"Location": "ftp://elsewhere/m"}}, "no address of the web"),
        ({"status": 302, "body": b"", "headers": {"Location": "/m"}}, "redirects more than 5 times"),
        ({"status": 302, "body": b"", "headers": {"Location": "http://[bad/m"}}, "no address of the web"),
        ({"status": 302, "body": b"", "headers": {"Location": "http://a..b/m"}}, "no address of the web"),
        (
            {"status": 503, "body": b"", "headers": {"Retry-After": "9" * 5000}},
            "answered 503, and asks to wait for longer than 60 s",
        ),
        ({"headers": {"Content-Range": f"bytes 0-1/{'9' * 5000}"}}, "answers a range without saying which"),
    ],
)
def test_an_answer_that_is_not_the_file_is_named_at_once(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], does: dict[str, object], reason: str
) -> None:
    faulty.act = lambda ask: act(**does)  # type: ignore[arg-type]

    with pytest.raises(SourceFailed) as caught:
        road.bring(faulty.url, len(matter))

    assert reason in caught.value.reason
    assert len(faulty.asks) <= 6
    assert road.counted == []


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (
            b"<!DOCTYPE html><title>Log in",
            "text/html; charset=utf-8",
            "28 bytes of text/html instead of 5246977",
        ),
        (b"version https://git-lfs.github.com/spec/v1\noid", "text/plain", "(a Git LFS pointer)"),
        (b"\n <html><body>Sign in", "application/octet-stream", "(a web page, perhaps to log in)"),
    ],
)
@pytest.mark.parametrize("is_part", [True, False])
def test_a_login_page_or_pointer_instead_of_the_file_is_named(
    faulty: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    body: bytes,
    kind: str,
    reason: str,
    is_part: bool,
) -> None:
    headers = {"Content-Type": kind}
    if is_part:
        headers["Content-Range"] = f"bytes 0-{len(body) - 1}/{len(body)}"
    faulty.act = lambda ask: act(status=206 if is_part else 200, body=body, headers=headers)

    with pytest.raises(SourceFailed) as caught:
        road.bring(faulty.url, len(matter))
    assert reason in caught.value.reason


def test_a_server_without_ranges_is_read_as_one_stream(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(is_whole=True)

    assert road.bring(faulty.url, len(matter)) == matter
    assert (len(faulty.asks), faulty.sent_bytes) == (1, len(matter))


def test_a_stream_that_breaks_is_read_again_over_what_is_here(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    broken = act(is_whole=True, sends=3_300_000, ending="close")
    faulty.act = lambda ask: broken if ask.nth == 1 else act(is_whole=True)

    assert road.bring(faulty.url, len(matter)) == matter
    assert [ask.is_ranged for ask in faulty.asks] == [True, False]
    assert sum(road.counted) == len(matter)


def test_a_chunked_answer_is_read_as_well(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    pieces = matter[:1_234_567], matter[1_234_567:], b""
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces)
    headers = {"Transfer-Encoding": "chunked"}
    faulty.act = lambda ask: act(status=200, body=chunked, headers=headers, ending="close")

    assert road.bring(faulty.url, len(matter)) == matter


def test_the_whole_file_in_answer_to_a_later_range_is_named(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(is_whole=ask.nth == 3)

    with pytest.raises(SourceFailed, match="answers some ranges with the whole file"):
        road.bring(faulty.url, len(matter))


@pytest.mark.parametrize("how", ["412", "etag", "size"])
def test_a_file_that_changes_in_mid_transfer_is_fetched_once_more_from_the_start(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], how: str
) -> None:
    new = bytes(reversed(matter))

    def answer(ask: "Ask") -> "Act":
        if ask.nth < 3:
            return act()
        if ask.nth == 3:
            faulty.data = new
        if how == "size" and ask.nth == 3:
            return act(headers={"Content-Range": f"bytes {ask.start}-{ask.end - 1}/{len(matter) + 1}"})
        is_other = ask.headers.get("If-Match") == '"v1"'
        return act(status=412, body=b"") if how == "412" and is_other else act(etag='"v2"')

    faulty.act = answer

    assert road.bring(faulty.url, len(matter), connections=1) == new
    assert sum(road.counted) == len(matter)
    assert min(road.counted) < 0


def test_a_file_that_never_stops_changing_is_given_up(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(etag=f'"v{ask.nth}"')

    with pytest.raises(SourceFailed, match="changed during the transfer"):
        road.bring(faulty.url, len(matter))


def test_a_stalled_part_is_raced_by_a_second_request(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.data = matter * 2
    slow = act(rate=2e6)
    faulty.act = lambda ask: act(sends=0, ending="hold") if ask.nth == 2 else slow
    began = time.monotonic()
    road.limits = type(road.limits)(tick_s=0.05, silent_s=0.3, stall_s=20)

    assert road.bring(faulty.url, len(faulty.data)) == faulty.data
    assert time.monotonic() - began < 20
    assert Counter(ask.start for ask in faulty.asks)[faulty.asks[1].start] == 2
    assert sum(road.counted) == len(faulty.data)


def test_a_part_that_is_far_slower_than_the_others_is_raced(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.data = matter * 2
    faulty.act = lambda ask: act(rate=20_000 if ask.nth == 2 else 2e6)
    road.limits = replace(road.limits, slow_window_s=0.2)
    began = time.monotonic()

    assert road.bring(faulty.url, len(faulty.data)) == faulty.data
    assert time.monotonic() - began < 25  # alone it would take 52 s
    assert sum(road.counted) == len(faulty.data)


def test_a_stall_of_all_is_tried_again(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(sends=0, ending="hold") if ask.nth <= 1 else act()

    assert road.bring(faulty.url, len(matter), connections=1) == matter


def test_an_expired_address_is_made_anew_in_mid_transfer(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], source: type["Source"]
) -> None:
    faulty.act = lambda ask: act(status=403, body=b"") if "sig=1" in ask.path and ask.nth > 3 else act()
    one = source(f"{faulty.url}?sig=1", renewed=[f"{faulty.url}?sig=2"])

    assert road.bring(one, len(matter)) == matter
    assert one.renewals == 1
    assert faulty.sent_bytes == len(matter)


@pytest.mark.parametrize(
    ("code", "query", "renewals"),
    [
        ("ExpiredToken", "X-Amz-Signature=1", 1),
        ("RequestTimeTooSkewed", "X-Amz-Signature=1", 0),
        ("ExpiredToken", "unsigned", 0),
    ],
)
def test_a_signature_whose_session_is_over_is_made_anew(
    faulty: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    source: type["Source"],
    code: str,
    query: str,
    renewals: int,
) -> None:
    said = f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    faulty.act = lambda ask: act(status=400, body=said) if query in ask.path and ask.nth > 3 else act()
    one = source(f"{faulty.url}?{query}", renewed=[f"{faulty.url}?new"])

    if renewals:
        assert road.bring(one, len(matter)) == matter
    else:
        with pytest.raises(SourceFailed, match="answered 400"):
            road.bring(one, len(matter))
    assert one.renewals == renewals


def test_a_source_that_limits_by_refusing_is_not_asked_in_a_tight_loop(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], source: type["Source"]
) -> None:
    unlucky = MIB
    faulty.data = matter * 4

    def answer(ask: "Ask") -> "Act":
        if ask.start != unlucky:
            return act()
        # Others go well meanwhile, which is no reason to go on asking for this one.
        most = min(len(faulty.asks) + 4, 18)
        until = time.monotonic() + 5
        while len(faulty.asks) < most and time.monotonic() < until:
            faulty.over.wait(0.001)
        return act(status=403, body=b"")

    faulty.act = answer
    one = source(faulty.url, renewed=[faulty.url] * 99)

    with pytest.raises(SourceFailed, match="access denied"):
        road.bring(one, len(faulty.data))
    assert Counter(ask.start for ask in faulty.asks)[unlucky] == road.limits.renewals + 1


def test_connections_are_made_while_the_first_answer_is_awaited(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    before: list[int] = []

    def answer(ask: "Ask") -> "Act":
        if ask.nth == 1:
            until = time.monotonic() + 10
            while faulty.connections < 4 and time.monotonic() < until:
                faulty.over.wait(0.001)
            before.extend((faulty.connections, len(faulty.asks)))
        return act()

    faulty.act = answer

    assert road.bring(faulty.url, len(matter)) == matter
    assert before == [4, 1]
    assert faulty.connections == 4


def test_an_address_is_not_made_anew_for_ever(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], source: type["Source"]
) -> None:
    faulty.act = lambda ask: act(status=403, body=b"")
    one = source(faulty.url, renewed=[faulty.url] * 9)

    with pytest.raises(SourceFailed, match="access denied"):
        road.bring(one, len(matter))
    assert one.renewals == 2


def test_a_redirect_is_followed_once_and_its_target_is_told_no_secret(
    faulty: "Faulty",
    other_faulty: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    source: type["Source"],
) -> None:
    moved = {"Location": f"{other_faulty.url}?signature=1"}
    faulty.act = lambda ask: act(status=302, body=b"", headers=moved, etag='"of the redirect"')
    one = source(faulty.url, headers={"Authorization": "Bearer 5ecret", "X-Token": "5ecret"})

    assert road.bring(one, len(matter)) == matter
    assert faulty.asks[0].headers["Authorization"] == "Bearer 5ecret"
    assert (len(faulty.asks), len(other_faulty.asks)) == (1, 6)
    assert not any("5ecret" in str(ask.headers) for ask in other_faulty.asks)
    assert {ask.headers.get("If-Match") for ask in other_faulty.asks[1:]} == {'"v1"'}


def test_a_redirect_on_the_same_host_keeps_the_headers(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"], source: type["Source"]
) -> None:
    faulty.act = lambda ask: (
        act(status=307, body=b"", headers={"Location": "/n"}) if ask.path == "/m" else act()
    )
    one = source(faulty.url, headers={"Authorization": "Bearer 5ecret"})

    assert road.bring(one, len(matter)) == matter
    assert {ask.headers.get("Authorization") for ask in faulty.asks} == {"Bearer 5ecret"}
    assert Counter(ask.path for ask in faulty.asks) == {"/m": 1, "/n": 6}


def test_a_redirect_that_expires_is_asked_for_again_at_the_source(
    faulty: "Faulty",
    other_faulty: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    source: type["Source"],
) -> None:
    faulty.act = lambda ask: act(
        status=302, body=b"", headers={"Location": f"{other_faulty.url}?n={ask.nth}"}
    )
    other_faulty.act = lambda ask: act(status=403, body=b"") if "n=1" in ask.path and ask.nth > 3 else act()
    one = source(faulty.url)

    assert road.bring(one, len(matter)) == matter
    assert one.renewals == 0
    assert 2 <= len(faulty.asks) <= 5  # at most once more for each connection


def test_a_stop_ends_a_transfer_whose_reads_are_blocked(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    road.limits = type(road.limits)(tick_s=30, stall_s=60)
    faulty.act = lambda ask: act(sends=1000, ending="hold")
    caught: list[BaseException] = []

    def bring() -> None:
        try:
            road.bring(faulty.url, len(matter))
        except Stopped as exc:
            caught.append(exc)

    thread = threading.Thread(target=bring)
    thread.start()
    assert faulty.held.wait(10)
    began = time.monotonic()
    road.flow.stop()
    thread.join(10)

    assert time.monotonic() - began < 5
    assert len(caught) == 1


def test_what_came_before_a_failure_is_not_fetched_again(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(status=404, body=b"") if ask.nth > 3 else act()
    with pytest.raises(SourceFailed, match="not there"):
        road.bring(faulty.url, len(matter), connections=1, keep=True)
    faulty.act = lambda ask: act()
    faulty.asks.clear()

    assert road.bring(faulty.url, len(matter)) == matter
    assert road.resumed_bytes == 3 * MIB
    assert sorted(ask.start for ask in faulty.asks) == [3 * MIB, 4 * MIB, 5 * MIB]


def test_tls_is_read_as_plain_http_is(
    faulty_tls: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    tls_certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_certificate))
    faulty_tls.act = lambda ask: act(sends=300_001, ending="close") if ask.nth == 2 else act()

    assert road.bring(faulty_tls.url, len(matter)) == matter
    assert faulty_tls.sent_bytes == len(matter)


def test_a_stalled_tls_connection_is_tried_again(
    faulty_tls: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    tls_certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_certificate))
    faulty_tls.act = lambda ask: act(sends=300_001, ending="hold") if ask.nth == 1 else act()

    assert road.bring(faulty_tls.url, len(matter), connections=1) == matter


def test_a_certificate_that_nobody_trusts_is_named(faulty_tls: "Faulty", road: "Road", matter: bytes) -> None:
    with pytest.raises(SourceFailed, match="its TLS certificate is not trusted"):
        road.bring(faulty_tls.url, len(matter))
    assert faulty_tls.asks == []


def test_no_signature_reaches_log_or_error(
    faulty: "Faulty",
    road: "Road",
    matter: bytes,
    act: type["Act"],
    source: type["Source"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    faulty.act = lambda ask: act(status=503, body=b"")
    one = source(f"{faulty.url}?X-Amz-Signature=5ecret", headers={"Authorization": "5ecret"})

    with pytest.raises(SourceFailed) as caught:
        road.bring(one, len(matter))

    assert "503" in caplog.text
    assert "5ecret" not in caplog.text + repr(caught.value) + repr(one.request())
    assert caught.value.__cause__ is None


def test_a_server_that_takes_few_connections_gets_fewer(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.data = matter * 4
    busy = threading.Semaphore(2)

    def answer(ask: "Ask") -> "Act":
        if not busy.acquire(blocking=False):
            return act(status=503, body=b"")
        threading.Timer(0.05, busy.release).start()
        return act(rate=40e6)

    faulty.act = answer
    road.limits = type(road.limits)(first_wait_s=0.05, most_wait_s=0.5)

    assert road.bring(faulty.url, len(faulty.data), connections=16) == faulty.data
    assert faulty.sent_bytes == len(faulty.data)


def test_the_end_of_a_slow_transfer_is_shared_among_idle_connections(
    faulty: "Faulty", road: "Road", matter: bytes, act: type["Act"]
) -> None:
    faulty.data = (matter * 13)[: 66 * MIB]  # in parts of two chunks
    faulty.act = lambda ask: act(rate=1e6 if ask.start >= 62 * MIB else None)

    assert road.bring(faulty.url, len(faulty.data)) == faulty.data
    assert any(ask.start % (2 * MIB) for ask in faulty.asks)
    assert sum(road.counted) == len(faulty.data)


def test_two_files_share_one_budget_of_connections(
    faulty: "Faulty", other_faulty: "Faulty", matter: bytes, act: type["Act"], tmp_path: Path, road: "Road"
) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def answer(ask: "Ask") -> "Act":
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Timer(0.05, ended).start()
        return act(rate=20e6)

    def ended() -> None:
        nonlocal now
        with lock:
            now -= 1

    faulty.act = other_faulty.act = answer
    road.budget = type(road.budget)(6)
    second = type(road)(tmp_path / "second", budget=road.budget)
    second.folder.mkdir()
    brought: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: brought.append(road.bring(faulty.url, len(matter), connections=16))),
        threading.Thread(
            target=lambda: brought.append(second.bring(other_faulty.url, len(matter), connections=16))
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert brought == [matter, matter]
    # The server notices an end a little late; without a budget there would be 32.
    assert 1 < most <= road.budget.total + 4


def test_a_file_that_is_all_here_asks_for_nothing(faulty: "Faulty", road: "Road", matter: bytes) -> None:
    landing = open_landing(road.folder / "partial", 9, stop=road.flow.check)
    chunk = landing.buffer(0, road.flow.check)
    chunk.view[:] = b"few bytes"
    landing.put(chunk)
    landing.close(keep=True)

    assert road.bring(faulty.url, 9) == b"few bytes"
    assert faulty.asks == []
