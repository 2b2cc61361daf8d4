"""What peers say to each other over HTTP: paths, headers, and the token that keeps strangers out.

The token says who may read; it proves nothing about bytes, and travels in the clear: it is for a network of
one's own. Nothing that a peer says is trusted: a file is believed when its SHA-256 is right, and no sooner.
"""

import hmac
import re
from urllib.parse import urlsplit

from comfyfarm.addresses import mask
from comfyfarm.errors import UsageError

PEER_ID = "X-Comfyfarm-Peer"
"""In every answer: the id of the cache that answers."""
COMING = "X-Comfyfarm-Coming"
"""With a 503: the file is being fetched there. How many of its bytes are durable so far."""
MOVED = "X-Comfyfarm-Moved"
"""Beside it: changes whenever bytes came."""
BUSY = "X-Comfyfarm-Busy"
"""With a 404: another file is being fetched there."""

_BLOB_PATH = re.compile(r"/sha256/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_TOKEN = re.compile(r"[!-~]+")
_HOST_AND_PORT = re.compile(r"(\[[^\]/@]+\]|[^:/@\s]+):\d+")


def sha256_of(path: str) -> str | None:
    """Which blob a request's path names; None for every path that names none."""
    found = _BLOB_PATH.fullmatch(path)
    return found[2] if found else None


def checked_token(token: str) -> str:
    """The token, as it is.

    Raises:
        UsageError: it cannot be sent in a header.
    """
    if not _TOKEN.fullmatch(token):
        raise UsageError("COMFYFARM_PEER_TOKEN: use letters, digits and signs of ASCII, without spaces")
    return token


def bearer(token: str | None) -> dict[str, str]:
    """The header that shows the token; none without a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_shown(token: str, authorization: str | None) -> bool:
    """Whether the header shows the token. Takes as long for a near miss as for a far one."""
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode("utf-8", "surrogateescape"), token.encode()
    )


def peer_url(address: str) -> str:
    """A peer's address, `host:port` or `http(s)://host[:port]`, as a URL without a path.

    Raises:
        UsageError: it is neither, or holds a password.
    """
    url = (f"http://{address}" if _HOST_AND_PORT.fullmatch(address) else address).rstrip("/")
    if not _is_peer(url):
        raise UsageError(f"COMFYFARM_PEERS: {mask(address)!a} is no peer; write such as http://gpu-2:8199")
    return url


def _is_peer(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_bare = url == f"{parts.scheme}://{parts.netloc}" and "@" not in parts.netloc
    return is_bare and parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0
