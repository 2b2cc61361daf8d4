"""As whom a web server is asked, and what is said when it refuses."""

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from comfyfarm.cache.places.web_auth import auth_headers, auth_hint
from comfyfarm.errors import UsageError

_HF = "https://huggingface.co/org/repo/resolve/main/model.safetensors"
_CIVITAI = "https://civitai.com/api/download/models/1234"
_TOKENS = {"HF_TOKEN": "hf_secret", "CIVITAI_API_TOKEN": "civ_secret"}


def _basic(pair: str) -> Mapping[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


@pytest.mark.parametrize(
    ("url", "environ", "token"),
    [
        (_HF, _TOKENS, "hf_secret"),
        (_HF.replace("huggingface.co", "HuggingFace.co"), _TOKENS, "hf_secret"),
        (_HF, {"HF_TOKEN": " hf_secret\n"}, "hf_secret"),
        ("https://hub.lan:8443/org/repo", {**_TOKENS, "HF_ENDPOINT": "https://hub.lan:8443/"}, "hf_secret"),
        ("http://127.0.0.1:8080/x", {**_TOKENS, "HF_ENDPOINT": "http://127.0.0.1:8080"}, "hf_secret"),
        ("http://10.1.2.3:80/x", {**_TOKENS, "HF_ENDPOINT": "http://10.1.2.3"}, "hf_secret"),
        (_CIVITAI, _TOKENS, "civ_secret"),
        ("https://www.civitai.com/api/download/models/1", _TOKENS, "civ_secret"),
        (_CIVITAI, {"CIVITAI_TOKEN": "other"}, "other"),
        (_CIVITAI, {"CIVITAI_API_TOKEN": "", "CIVITAI_TOKEN": "other"}, "other"),
    ],
)
def test_a_token_goes_to_its_host(url: str, environ: Mapping[str, str], token: str) -> None:
    assert auth_headers(url, environ) == {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("https://example.com/model.safetensors", {}),
        ("https://nothuggingface.co/x", {}),
        ("https://huggingface.co.example.com/x", {}),
        ("https://example.com/huggingface.co/x", {}),
        ("https://cdn-lfs.huggingface.co/x", {}),
        ("https://notcivitai.com/x", {}),
        ("http://huggingface.co/org/repo", {}),
        ("http://civitai.com/api/download/models/1", {}),
        ("http://hub.example.com/x", {"HF_ENDPOINT": "http://hub.example.com"}),
        ("http://8.8.8.8/x", {"HF_ENDPOINT": "http://8.8.8.8"}),
        ("https://hub.lan:9000/x", {"HF_ENDPOINT": "https://hub.lan:8443"}),
        ("http://hub.lan/x", {"HF_ENDPOINT": "https://hub.lan"}),
        ("http://127.0.0.1:8080/x", {}),
        (_CIVITAI + "?token=of-the-address", {}),
        (_HF + "?X-Amz-Signature=abc", {}),
        ("https://hub.lan:none/x", {"HF_ENDPOINT": "https://hub.lan:none"}),
    ],
)
def test_a_token_goes_nowhere_else(url: str, environ: Mapping[str, str]) -> None:
    assert auth_headers(url, {**_TOKENS, **environ}) == {}


def test_the_address_own_login_comes_first() -> None:
    assert auth_headers("https://us%40er:p%3Aw@huggingface.co/x", _TOKENS) == _basic("us@er:p:w")


def test_netrc_serves_the_hosts_that_it_names_and_no_others(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(
        "machine files.lan login me password pw\ndefault login any password any\n"
    )
    environ = {"HOME": str(tmp_path)}

    assert auth_headers("https://files.lan/x", environ) == _basic("me:pw")
    assert auth_headers("https://elsewhere.lan/x", environ) == {}
    assert auth_headers("http://files.lan/x", environ) == {}
    assert auth_headers("https://files.lan/x?X-Amz-Signature=1", environ) == {}


def test_a_torn_netrc_is_passed_over_without_a_word_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "netrc").write_text("machine files.lan pw-that-is-secret\n")

    assert auth_headers("https://files.lan/x", {"NETRC": str(tmp_path / "netrc")}) == {}
    assert "cannot be read" in caplog.text
    assert "pw-that-is-secret" not in caplog.text


@pytest.mark.parametrize("token", ["two words", "line\nX-Evil: 1", "töken"])
def test_a_token_that_no_header_can_hold_is_refused_by_its_variable(token: str) -> None:
    with pytest.raises(UsageError, match="HF_TOKEN") as caught:
        auth_headers(_HF, {"HF_TOKEN": token})
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "status", "environ", "words"),
    [
        (_HF, 401, {}, "set HF_TOKEN"),
        (_HF, 403, _TOKENS, "gated"),
        (_HF, 401, _TOKENS, "not valid"),
        (_HF, 404, {}, "private repository"),
        (_CIVITAI, 401, {}, "set CIVITAI_API_TOKEN"),
        (_CIVITAI, 403, _TOKENS, "early access"),
        (_CIVITAI, 404, {}, "several files"),
        ("https://files.lan/x", 401, {}, "netrc"),
        ("https://files.lan/x?X-Amz-Signature=1", 403, {}, "expired"),
    ],
)
def test_a_refusal_says_what_to_do(url: str, status: int, environ: Mapping[str, str], words: str) -> None:
    assert words in auth_hint(url, status, environ)


@pytest.mark.parametrize(
    ("url", "status"),
    [(_HF, 500), (_HF, 200), ("https://files.lan/x", 404), ("https://files.lan/x?sig=1", 404)],
)
def test_there_is_no_hint_where_nothing_can_be_done(url: str, status: int) -> None:
    assert auth_hint(url, status) == ""


def test_a_hint_without_the_environment_names_the_variable() -> None:
    assert "HF_TOKEN" in auth_hint(_HF, 401)
    assert "CIVITAI_API_TOKEN" in auth_hint(_CIVITAI, 403)
