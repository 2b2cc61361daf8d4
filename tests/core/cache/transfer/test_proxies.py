"""Which addresses the environment sends through a proxy."""

import pytest

from comfyfarm.cache.transfer.proxies import speaks_straight

_PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "environ", "is_straight"),
    [
        ("https://a.example/m", {}, True),
        ("https://a.example/m", {"HTTPS_PROXY": _PROXY}, False),
        ("https://a.example/m", {"https_proxy": _PROXY}, False),
        ("https://a.example/m", {"all_proxy": _PROXY}, False),
        ("https://a.example/m", {"HTTP_PROXY": _PROXY}, True),
        ("http://a.example/m", {"HTTP_PROXY": _PROXY}, False),
        ("https://a.example/m", {"HTTPS_PROXY": ""}, True),
        ("https://[bad/m", {"HTTPS_PROXY": _PROXY}, True),
        ("https://a.example/m", {"HTTPS_PROXY": _PROXY, "NO_PROXY": "b.example, .example"}, True),
        ("https://a.example/m", {"HTTPS_PROXY": _PROXY, "NO_PROXY": "b.example"}, False),
        ("https://a.example/m", {"HTTPS_PROXY": _PROXY, "NO_PROXY": "*.example"}, True),
        ("https://xa.example/m", {"HTTPS_PROXY": _PROXY, "NO_PROXY": "a.example"}, False),
        ("https://a.example/m", {"HTTPS_PROXY": _PROXY, "no_proxy": "*"}, True),
        ("http://u:p@10.1.2.3:80/m", {"HTTP_PROXY": _PROXY, "no_proxy": "10.0.0.0/8"}, True),
        ("http://10.1.2.3:80/m", {"HTTP_PROXY": _PROXY, "no_proxy": "10.1.2.3:80"}, True),
        ("http://10.1.2.3:81/m", {"HTTP_PROXY": _PROXY, "no_proxy": "10.1.2.3:80"}, False),
    ],
)
def test_a_proxy_is_seen_where_it_is_for_that_address(
    url: str, environ: dict[str, str], is_straight: bool
) -> None:
    assert speaks_straight(url, environ) is is_straight
