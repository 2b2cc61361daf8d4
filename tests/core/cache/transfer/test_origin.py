"""How a web address is taken apart."""

import pytest

from comfyfarm.cache.transfer.origin import origin_of, target_of


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a.example/m", "a.example"),
        ("HTTPS://user:p%40ss@A.example:443/m", "a.example"),
        ("https://a.example:80/m", "a.example:80"),
        ("http://[::1]:8080/m", "[::1]:8080"),
        ("http://b\u00fccher.example/m", "xn--bcher-kva.example"),
    ],
)
def test_the_host_is_said_without_login_and_standard_port(url: str, shown: str) -> None:
    origin = origin_of(url)

    assert origin is not None
    assert origin.shown == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/m",
        "file:///m",
        "http:///m",
        "http://a:port/m",
        "http://a:99999/m",
        "http://[bad/m",
        "http://a..b/m",
        f"http://{'a' * 64}/m",
    ],
)
def test_what_is_no_web_address_is_none(url: str) -> None:
    assert origin_of(url) is None


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a", "/"),
        ("http://a?x=1", "/?x=1"),
        ("http://a/m%20n?X-Amz-Signature=ab%2Fc&y=+#f", "/m%20n?X-Amz-Signature=ab%2Fc&y=+"),
        ("http://a/\u00fc m", "/%C3%BC%20m"),
        ("http://a/m\r\nX: y", "/mX:%20y"),
    ],
)
def test_path_and_query_stay_as_they_are_and_fit_a_request_line(url: str, target: str) -> None:
    assert target_of(url) == target
