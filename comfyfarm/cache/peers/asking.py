"""One question to one peer: has it this file? What it answers is a claim, never believed beyond its form."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from comfyfarm.cache.blobs import blob_key
from comfyfarm.cache.peers.protocol import BUSY, COMING, MOVED, PEER_ID, bearer
from comfyfarm.cache.pinned import Pinned

CONNECT_S = 1.0
ANSWER_S = 3.0

_ID = re.compile(r"[0-9a-f]{32}")


class Presence(Enum):
    """Of a file at a peer."""

    HERE = auto()
    COMING = auto()
    """Being fetched there, from wherever."""
    ABSENT = auto()


@dataclass(frozen=True)
class PeerAnswer:
    """What a peer says of a file."""

    peer_id: str
    presence: Presence
    progress: str = ""
    """Of a file that is coming: another text whenever more of it came."""
    is_busy: bool = False
    """This or another file is being fetched there."""


class PeerGone(Exception):
    """It did not answer, or not as a peer does."""


def ask(url: str, model: Pinned, *, token: str | None) -> PeerAnswer:
    """Ask a peer for a file; takes `CONNECT_S` and `ANSWER_S` at most, where its name is known.

    Raises:
        PeerGone: no answer that can be used. The text names no secret.
    """
    connection = _connection(url)
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER_S)
        connection.request("HEAD", f"/{blob_key(model.sha256)}", headers=bearer(token))
        return _read(connection.getresponse(), model)
    except (OSError, HTTPException, UnicodeError) as exc:  # the last: a name that cannot be one
        # The library's texts may hold what was sent or what came.
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
        raise PeerGone(reason) from None
    finally:
        connection.close()


def _connection(url: str) -> HTTPConnection:
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=CONNECT_S)


def _read(response: HTTPResponse, model: Pinned) -> PeerAnswer:
    peer_id = response.headers.get(PEER_ID, "")
    status = response.status
    if status == 401:
        raise PeerGone("it wants another token (COMFYFARM_PEER_TOKEN must be the same on all hosts)")
    if not _ID.fullmatch(peer_id) or status not in {200, 404, 503}:
        raise PeerGone(f"answered {status}, as no peer does")
    if status == 200 and response.headers.get("Content-Length") == str(model.size):
        return PeerAnswer(peer_id, Presence.HERE)
    if status == 503 and COMING in response.headers:
        progress = f"{response.headers[COMING]} {response.headers.get(MOVED, '')}"
        return PeerAnswer(peer_id, Presence.COMING, progress=progress, is_busy=True)
    return PeerAnswer(peer_id, Presence.ABSENT, is_busy=status == 503 or BUSY in response.headers)
