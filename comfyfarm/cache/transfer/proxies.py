"""Whether a web address is reached straight, or through the HTTP proxy that the environment names. Pure."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def speaks_straight(url: str, environ: Mapping[str, str]) -> bool:
    """True without a proxy for this address: our own engine knows none, and leaves it to the library.

    `environ`: `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY`, less what `NO_PROXY` names; lower case wins.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return True  # no address at all, as whoever asks there will say
    names = (f"{parts.scheme.lower()}_proxy", "all_proxy")
    if not any(_value(environ, name) for name in names):
        return True
    host, port = parts.hostname or "", parts.netloc.rpartition(":")[2]
    spared = (each.strip().lower() for each in _value(environ, "no_proxy").split(","))
    return any(each in {"*", f"{host}:{port}"} or _is_of(host, each) for each in spared if each)


def _is_of(host: str, spared: str) -> bool:
    """Whether a host is the one that is spared, or within that domain or network."""
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(spared, strict=False)
    except ValueError:
        domain = spared.removeprefix("*").lstrip(".")
        return host == domain or host.endswith(f".{domain}")


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""
