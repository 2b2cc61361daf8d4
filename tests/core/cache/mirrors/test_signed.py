"""A signed list on a host without credentials: read, read again, and when it is of no use."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.signed import SignedList, signed_file
from comfyfarm.clock import SystemClock
from comfyfarm.errors import FarmError, InputError, StoreError

_SHA = "ab" * 32
_OLD = "https://host/x?X-Amz-Signature=old-secret"
_NEW = "https://host/x?X-Amz-Signature=new-secret"


@dataclass
class _Clock(SystemClock):
    """Stands still."""

    at: float = 1_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def _write(path: Path, url: str, *, expires_at: float) -> None:
    path.write_text(signed_file({_SHA: url}, expires_at=expires_at).text())


@pytest.fixture
def clock() -> _Clock:
    """It is a million seconds past 1970."""
    return _Clock()


@pytest.fixture
def place(tmp_path: Path, clock: _Clock) -> Path:
    """A list that is good for an hour."""
    _write(tmp_path / "signed.json", _OLD, expires_at=clock.at + 3600)
    return tmp_path / "signed.json"


def test_the_list_is_plain_json(place: Path) -> None:
    assert json.loads(place.read_text()) == {
        "version": 1,
        "expires": "1970-01-12T14:46:40Z",
        "files": {_SHA: _OLD},
    }


def test_a_file_of_the_list_has_an_address_and_others_have_none(place: Path, clock: _Clock) -> None:
    signed = SignedList(str(place), clock=clock)

    source = signed.addressed(_SHA)

    assert source is not None
    assert source.request().url == _OLD
    assert not source.request().headers
    assert signed.addressed("cd" * 32) is None


def test_a_refused_address_is_renewed_once_the_list_is_made_anew(place: Path, clock: _Clock) -> None:
    source = SignedList(str(place), clock=clock).addressed(_SHA)
    assert source is not None
    source.request()
    clock.at += 100
    assert not source.renew(), "nobody has made it anew"

    _write(place, _NEW, expires_at=clock.at + 3600)
    clock.at += 100

    assert source.renew()
    assert source.request().url == _NEW
    assert not source.renew()


def test_what_one_file_renewed_is_new_for_the_others_too(place: Path, clock: _Clock) -> None:
    signed = SignedList(str(place), clock=clock)
    one, other = signed.addressed(_SHA), signed.addressed(_SHA)
    assert one is not None
    assert other is not None
    one.request(), other.request()
    _write(place, _NEW, expires_at=clock.at + 3600)
    assert one.renew()
    place.unlink()

    assert other.renew()
    assert other.request().url == _NEW


def test_a_list_that_is_about_to_expire_is_read_again(place: Path, clock: _Clock) -> None:
    source = SignedList(str(place), clock=clock).addressed(_SHA)
    assert source is not None
    _write(place, _NEW, expires_at=clock.at + 7200)
    assert source.request().url == _OLD

    clock.at += 3600 - 30

    assert source.request().url == _NEW


def test_an_old_list_serves_while_the_new_one_cannot_be_read(
    place: Path, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    source = SignedList(str(place), clock=clock).addressed(_SHA)
    assert source is not None
    place.unlink()
    clock.at += 3600 - 30

    assert source.request().url == _OLD
    assert "cannot be read again" in caplog.text
    assert not source.renew()


def test_an_expired_list_is_named_with_what_to_do(place: Path, clock: _Clock) -> None:
    signed = SignedList(str(place), clock=clock)
    source = signed.addressed(_SHA)
    assert source is not None
    clock.at += 3601

    # Whoever asks a source names it beside its failure.
    with pytest.raises(
        StoreError, match=r"^the signed list expired at 1970-01-12 14:46:40 UTC; .*mirror sign"
    ):
        source.request()
    with pytest.raises(StoreError, match=r"signed\.json: the signed list expired"):
        SignedList(str(place), clock=clock).read()


def test_a_file_that_the_new_list_lacks_is_named(place: Path, clock: _Clock) -> None:
    source = SignedList(str(place), clock=clock).addressed(_SHA)
    assert source is not None
    place.write_text(signed_file({}, expires_at=clock.at + 9999).text())
    clock.at += 3600 - 30

    with pytest.raises(StoreError, match="does not have"):
        source.request()


@pytest.mark.parametrize(
    "text",
    [
        "no JSON, secret",
        "[]",
        '{"version": 2, "expires": "2026-01-01T00:00:00Z", "files": {}}',
        '{"version": 1, "expires": "secret", "files": {"x": "https://secret"}}',
        '{"version": 1, "expires": "2026-01-01T00:00:00Z", "files": {"secret": "https://host"}}',
    ],
)
def test_something_else_is_refused_without_its_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text(text)
    with pytest.raises(InputError, match="is no signed list") as caught:
        SignedList(str(tmp_path / "list")).read()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FarmError, match="no such file"):
        SignedList(str(tmp_path / "absent")).addressed(_SHA)


def test_nothing_that_is_printed_holds_a_signature(place: Path, clock: _Clock) -> None:
    signed = SignedList(str(place), clock=clock)
    source = signed.addressed(_SHA)
    assert source is not None

    printed = f"{signed.read()!r} {signed.read()} {source!r} {source.address} {source.request()!r}"

    assert "secret" not in printed
    assert source.address == f"{place}#{_SHA[:12]}"
