"""Whom a web address is to be asked of, and by which path. Pure."""

from typing import NamedTuple
from urllib.parse import quote, urlsplit

_SAFE = "%/:=&?~!$'()*+,;@[]|"
_STANDARD_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Whom a connection is to."""

    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        """As the `Host` header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _STANDARD_PORTS[self.scheme] else f"{host}:{self.port}"


def origin_of(url: str) -> Origin | None:
    """Whom to connect to; None when it is no address of the web."""
    try:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        port = parts.port or _STANDARD_PORTS.get(scheme, 0)
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:
        return None
    return Origin(scheme, host, port) if host and scheme in _STANDARD_PORTS else None


def target_of(url: str) -> str:
    """Path and query, as the request line says them."""
    parts = urlsplit(url)
    return quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_SAFE)
