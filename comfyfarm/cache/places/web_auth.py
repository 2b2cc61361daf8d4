"""As whom a web server is asked for a model file, and what to say when it refuses.

A token goes to the host that it is for and to no other, and never over plain HTTP beyond this machine and its
private network. Redirects are the engine's affair: it drops these headers on another host.
"""

import base64
import ipaddress
import logging
import netrc
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from comfyfarm.errors import UsageError

_log = logging.getLogger(__name__)

_HUGGING_FACE = "huggingface.co"
_CIVITAI = "civitai.com"
_CIVITAI_VARIABLES = ("CIVITAI_API_TOKEN", "CIVITAI_TOKEN")
_SIGNED = frozenset({"x-amz-signature", "x-goog-signature", "sig", "signature", "token"})
"""Query fields by which an address says itself who asks; a store refuses two ways at once."""
_PORTS = {"http": 80, "https": 443}


def auth_headers(url: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """What to send with a request for `url`, besides what every request carries; often nothing.

    User and password of the address come first, then the token of a known host (`HF_TOKEN` for Hugging Face
    and for the host of `HF_ENDPOINT`, `CIVITAI_API_TOKEN` or `CIVITAI_TOKEN` for Civitai), then `~/.netrc`
    (or `NETRC`), of which only entries that name the host count.

    Raises:
        UsageError: a token with signs that no header can hold.
    """
    parts = urlsplit(url)
    if parts.username is not None:
        return _basic(unquote(parts.username), unquote(parts.password or ""))
    if _is_signed(parts) or not _is_private_road(parts):
        return {}
    variables = _variables(parts, environ)
    token = next((_token(name, environ[name]) for name in variables if environ.get(name, "").strip()), None)
    if token is not None:
        return {"Authorization": f"Bearer {token}"}
    known = _from_netrc(parts.hostname or "", environ)
    return {} if known is None else _basic(*known)


def auth_hint(url: str, status: int, environ: Mapping[str, str] | None = None) -> str:
    """What the user can do about a 401, 403 or 404 of `url`; empty where there is nothing to say.

    With `environ` it also tells a token that is missing from one that does not suffice.
    """
    if status not in {401, 403, 404}:
        return ""
    parts = urlsplit(url)
    if _is_signed(parts) and status != 404:
        return "the signature or token in the address may have expired: have a new one made"
    known = environ or {}
    variables = _variables(parts, known)
    if not variables:
        return "" if status == 404 else "write user:password@ into its address, or name the host in ~/.netrc"
    has_token = any(known.get(name, "").strip() for name in variables)
    remedies = _REMEDIES["civitai" if variables == _CIVITAI_VARIABLES else "hugging face"]
    if status == 404:
        return remedies.absent
    if not has_token:
        return remedies.anonymous
    return remedies.invalid if status == 401 else remedies.forbidden


class _Remedies(NamedTuple):
    anonymous: str
    invalid: str
    forbidden: str
    absent: str


_REMEDIES = {
    "hugging face": _Remedies(
        anonymous="set HF_TOKEN to a token that may read it; the terms of a gated repository are accepted "
        "on its page",
        invalid="HF_TOKEN is not valid (any more), or may not see this repository",
        forbidden="the repository is gated: accept its terms on its page as the owner of HF_TOKEN, "
        "and let a fine-grained token read gated repositories",
        absent="no such file at this revision, or a private repository that HF_TOKEN may not read",
    ),
    "civitai": _Remedies(
        anonymous="set CIVITAI_API_TOKEN to a key of your account; a file in early access needs one that "
        "bought it",
        invalid="CIVITAI_API_TOKEN is not valid (any more)",
        forbidden="in early access, or for accounts that the key in CIVITAI_API_TOKEN does not belong to",
        absent="removed, hidden without CIVITAI_API_TOKEN, or a version with several files of which "
        "the address names none: copy the address of the very file",
    ),
}


def _variables(parts: SplitResult, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that hold a token for this host."""
    host = (parts.hostname or "").lower()
    if host == _CIVITAI or host.endswith(f".{_CIVITAI}"):
        return _CIVITAI_VARIABLES
    endpoint = urlsplit(environ.get("HF_ENDPOINT", "").strip())
    origin = _origin(parts)
    if host == _HUGGING_FACE or (origin is not None and origin == _origin(endpoint)):
        return ("HF_TOKEN",)
    return ()


def _origin(parts: SplitResult) -> tuple[str, str, int | None] | None:
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    try:
        port = parts.port
    except ValueError:  # no number, or none that a port can be
        return None
    return (scheme, host, port or _PORTS.get(scheme)) if host else None


def _is_signed(parts: SplitResult) -> bool:
    return any(name.lower() in _SIGNED for name, _ in parse_qsl(parts.query, keep_blank_values=True))


def _is_private_road(parts: SplitResult) -> bool:
    """Whether nobody on the way can read a header: TLS, or a host that is this machine or a neighbour."""
    if parts.scheme.lower() == "https":
        return True
    host = (parts.hostname or "").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def _token(variable: str, text: str) -> str:
    token = text.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{variable}: holds signs that no token has; set it anew")
    return token


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def _from_netrc(host: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    home = environ.get("HOME")
    named = environ.get("NETRC") or (str(Path(home) / ".netrc") if home else None)
    if named is None or not host:
        return None
    try:
        found = netrc.netrc(named).hosts.get(host)
    except FileNotFoundError:
        return None
    except (OSError, netrc.NetrcParseError, UnicodeError) as exc:
        # Not its text: it may quote a password.
        _log.warning("%s: cannot be read (%s); left out", named, type(exc).__name__)
        return None
    return None if found is None else (found[0], found[2])
