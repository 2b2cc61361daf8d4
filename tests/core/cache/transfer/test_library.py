"""The other engine brings the same bytes into the same landing, and names what is not the file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.library import pull_by_library
from comfyfarm.cache.transfer.source import Flow, SourceFailed

if TYPE_CHECKING:
    from tests.core.cache.transfer.conftest import Act, Faulty

MIB = 1 << 20


@pytest.fixture
def bring(tmp_path: Path, matter: bytes) -> Callable[["Faulty"], bytes]:
    """Fetches the file by the library."""

    def run(faulty: "Faulty") -> bytes:
        counted: list[int] = []
        flow = Flow(counted.append)
        place = open_place(f"{faulty.url}?X-Amz-Signature=5ecret")
        assert isinstance(place, RemotePlace)
        landing = open_landing(tmp_path / "partial", len(matter), stop=flow.check)
        try:
            pull_by_library(place, len(matter), landing, flow=flow)
            landing.digest(flow.check)
            landing.publish(tmp_path / "final", mode=0o644)
        finally:
            landing.close(keep=False)
        assert sum(counted) == len(matter)
        return (tmp_path / "final").read_bytes()

    return run


def test_a_file_comes_in_ranges(faulty: "Faulty", bring: Callable[["Faulty"], bytes], matter: bytes) -> None:
    assert bring(faulty) == matter
    assert sorted(ask.start for ask in faulty.asks) == [n * MIB for n in range(6)]
    assert sum(ask.headers.get("if-match") == '"v1"' for ask in faulty.asks) == 5


def test_a_body_that_breaks_goes_on_where_it_broke(
    faulty: "Faulty", bring: Callable[["Faulty"], bytes], matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(sends=300_001, ending="close") if ask.nth == 2 else act()

    assert bring(faulty) == matter
    assert faulty.sent_bytes == len(matter)


def test_a_server_without_ranges_gives_the_whole(
    faulty: "Faulty", bring: Callable[["Faulty"], bytes], matter: bytes, act: type["Act"]
) -> None:
    faulty.act = lambda ask: act(is_whole=True)

    assert bring(faulty) == matter


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ({"status": 404, "body": b""}, "not there"),
        ({"status": 403, "body": b""}, "access denied; check the credentials"),
        (
            {"status": 200, "body": b"<html>", "headers": {"Content-Type": "text/html"}},
            "the whole file|of text/html",
        ),
        ({"headers": {"Content-Range": "bytes 0-1048575/99999999"}}, "99999999 bytes of application/octet"),
    ],
)
def test_what_is_not_the_file_is_named_without_its_signature(
    faulty: "Faulty",
    bring: Callable[["Faulty"], bytes],
    act: type["Act"],
    does: dict[str, object],
    reason: str,
) -> None:
    faulty.act = lambda ask: act(**does)  # type: ignore[arg-type]

    with pytest.raises(SourceFailed, match=reason) as caught:
        bring(faulty)

    assert caught.value.address.startswith(faulty.url)
    assert "5ecret" not in repr(caught.value)
    assert caught.value.__cause__ is None
