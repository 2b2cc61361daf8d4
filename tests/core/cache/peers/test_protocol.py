"""Tokens, paths and addresses, as they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.cache.peers.protocol import bearer, checked_token, is_shown, peer_url, sha256_of
from comfyfarm.errors import UsageError

_SHA = "ab" * 32


def test_only_a_blobs_own_path_names_it() -> None:
    assert sha256_of(f"/sha256/ab/{_SHA}") == _SHA


@pytest.mark.parametrize(
    "path",
    ["/", "/sha256", "/sha256/", "/sha256/ab", "/sha256/ab/", f"/sha256/ac/{_SHA}", f"/sha256/ab/{_SHA}/",
     f"/sha256/ab/{_SHA}?x", f"/sha256/AB/{_SHA.upper()}", f"/sha256/ab/{_SHA}\n", f"//sha256/ab/{_SHA}",
     f"/sha256/ab/../ab/{_SHA}", f"/sha256/%61b/{_SHA}", f"http://x/sha256/ab/{_SHA}"],
)  # fmt: skip
def test_every_other_path_names_nothing(path: str) -> None:
    assert sha256_of(path) is None


@given(st.text())
def test_no_text_is_taken_for_a_path_with_dots(text: str) -> None:
    found = sha256_of(text)

    assert found is None or len(found) == 64


def test_a_token_is_shown_as_it_is() -> None:
    assert is_shown("secret", bearer("secret")["Authorization"])
    assert is_shown("secret", "bearer secret")
    for wrong in (None, "", "secret", "Bearer", "Bearer secre", "Bearer secret2", "Basic secret", "Bearer ü"):
        assert not is_shown("secret", wrong)


@pytest.mark.parametrize("token", ["", "two words", "ümlaut", "a\nb"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_said(token: str) -> None:
    with pytest.raises(UsageError) as failure:
        checked_token(token)

    assert not token or token not in str(failure.value)


@pytest.mark.parametrize(
    ("address", "url"),
    [("gpu-2:8199", "http://gpu-2:8199"), ("http://gpu-2:8199/", "http://gpu-2:8199"),
     ("https://gpu-2", "https://gpu-2"), ("[::1]:80", "http://[::1]:80"), ("10.0.0.7:1", "http://10.0.0.7:1")],
)  # fmt: skip
def test_an_address_becomes_a_url(address: str, url: str) -> None:
    assert peer_url(address) == url


@pytest.mark.parametrize(
    "address",
    ["gpu-2", "", "http://", "ftp://a", "http://a/b", "http://a?b=c", "http://a:99999", "http://[a", "a:0"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="COMFYFARM_PEERS"):
        peer_url(address)


def test_an_address_with_a_password_is_refused_without_being_said() -> None:
    with pytest.raises(UsageError) as failure:
        peer_url("http://user:hunter2@gpu-2:8199")

    assert "hunter2" not in str(failure.value)
