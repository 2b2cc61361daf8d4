"""Where a source is asked, and what another host is told."""

from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.transfer.route import Route
from comfyfarm.cache.transfer.source import SourceFailed
from comfyfarm.errors import StoreError

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Source

_GIVEN = {"Authorization": "5ecret"}


@pytest.fixture
def one(source: type["Source"]) -> "Source":
    return source("https://one.example/a/m?x=1", headers=_GIVEN, renewed=["https://one.example/new"])


@pytest.fixture
def route(one: "Source") -> Route:
    return Route(one, renewals=2)


@pytest.mark.parametrize(
    ("location", "url", "headers"),
    [
        ("n", "https://one.example/a/n", _GIVEN),
        ("/n?y=2", "https://one.example/n?y=2", _GIVEN),
        ("https://ONE.example:443/n", "https://ONE.example:443/n", _GIVEN),
        ("https://one.example:8443/n", "https://one.example:8443/n", {}),
        ("https://one.example.evil/n", "https://one.example.evil/n", {}),
        ("//two.example/n", "https://two.example/n", {}),
    ],
)
def test_only_the_same_host_is_told_the_headers(
    route: Route, location: str, url: str, headers: dict[str, str]
) -> None:
    hop = route.follow(route.begin(), location)

    assert (hop.url, hop.headers) == (url, headers)


def test_once_dropped_they_do_not_come_back(route: Route) -> None:
    away = route.follow(route.begin(), "https://two.example/n")

    assert route.follow(away, "https://one.example/m").headers == {}


@pytest.mark.parametrize("location", ["http://[bad/n", "//a..b/n", "ftp://one.example/n"])
def test_a_redirect_to_what_is_no_address_is_named(route: Route, location: str) -> None:
    with pytest.raises(SourceFailed, match="no address of the web"):
        route.follow(route.begin(), location)


def test_one_request_is_not_refused_for_ever_though_others_go_well(route: Route) -> None:
    hop = route.follow(route.begin(), "https://two.example/n")
    for times in (1, 2):
        route.refused(hop, times=times)
        route.settle(route.follow(route.begin(), "https://two.example/n"))

    with pytest.raises(SourceFailed, match="access denied"):
        route.refused(hop, times=3)


def test_a_redirect_to_plain_http_is_not_followed(route: Route) -> None:
    with pytest.raises(SourceFailed, match="redirects to an address without TLS"):
        route.follow(route.begin(), "http://one.example/m")


def test_a_redirect_from_plain_http_to_tls_on_the_same_host_keeps_them(source: type["Source"]) -> None:
    route = Route(source("http://one.example/m", headers=_GIVEN), renewals=2)

    assert route.follow(route.begin(), "https://one.example/m").headers == _GIVEN


def test_where_it_went_well_the_others_ask_too_until_it_is_refused(route: Route, one: "Source") -> None:
    hop = route.follow(route.begin(), "https://two.example/n")
    route.settle(hop)
    assert route.begin() == hop

    route.refused(hop)

    assert route.begin().url == one.url
    assert one.renewals == 0


def test_the_source_itself_is_made_anew_once_for_all_connections(route: Route, one: "Source") -> None:
    hops = [route.begin() for _ in range(3)]

    for hop in hops:
        route.refused(hop)

    assert one.renewals == 1
    assert route.begin().url == "https://one.example/new"


def test_what_an_old_address_gave_is_not_remembered(route: Route) -> None:
    old = route.begin()
    route.refused(old)

    route.settle(old)

    assert route.begin().url == "https://one.example/new"


def test_a_line_break_in_a_header_is_never_sent(source: type["Source"]) -> None:
    route = Route(source("http://one.example/m", headers={"X": "a\r\nHost: b"}), renewals=2)

    with pytest.raises(SourceFailed, match="line break"):
        route.begin()


def test_a_source_that_cannot_say_its_address_is_named(
    one: "Source", monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StoreError("s3://b/m: no credentials")

    # Patched: a real one needs an S3 account that has been taken away.
    monkeypatch.setattr(one, "request", fails)

    with pytest.raises(SourceFailed, match="no credentials"):
        Route(one, renewals=2).begin()
