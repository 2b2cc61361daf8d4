"""Requests to an S3-compatible store, signed (AWS signature version 4) by botocore's own signer.

Where the objects lie, and as whom they are asked for. Nothing here goes over the network, but for what
botocore asks for a role's credentials.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from comfyfarm.cache.places.place import DEFAULT_REGION, S3Access
from comfyfarm.errors import StoreError

if TYPE_CHECKING:
    from botocore.credentials import Credentials

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@dataclass(frozen=True)
class Bucket:
    """Where a bucket's objects lie."""

    name: str
    endpoint: str | None
    """None is AWS itself."""
    region: str

    @property
    def origin(self) -> str:
        """Scheme and host of every request."""
        if self.endpoint:
            return "/".join(self.endpoint.split("/")[:3])
        suffix = ".cn" if self.region.startswith("cn-") else ""
        host = f"s3.{self.region}.amazonaws.com{suffix}"
        return f"https://{host}" if self._is_in_path else f"https://{self.name}.{host}"

    def target(self, key: str, query: Mapping[str, str] | None = None) -> str:
        """Path and query of a request for a key; of the bucket itself for the empty one."""
        below = "/".join((self.endpoint or "").split("/")[3:]).strip("/")
        path = "/".join(part for part in (below, self.name if self._is_in_path else "") if part)
        path = "/" + (f"{path}/" if path else "") + quote(key, safe="/~")
        words = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted((query or {}).items()))
        return f"{path}?{words}" if words else path

    @property
    def _is_in_path(self) -> bool:
        # AWS's certificates do not cover a bucket name with a dot; stores of others want no DNS of their own.
        return bool(self.endpoint) or "." in self.name


@dataclass(frozen=True)
class Keys:
    """As whom a request is signed, now."""

    access_key: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """Unix time in seconds; None where nobody says that they end."""


@dataclass(frozen=True)
class Presigned:
    """An address that whoever has it may ask, for as long as it was signed for."""

    url: str = field(repr=False)
    ends_at: float | None
    """It ends with the credentials, if not before: Unix time in seconds, None where they say no end."""


class Signer:
    """Signs for one bucket. Safe in threads."""

    def __init__(self, region: str, access: S3Access | None) -> None:
        """`access`: else botocore's chain of profiles and roles says."""
        self._region = region or DEFAULT_REGION
        self._access = access
        self._found: Credentials | None = None
        self._lock = threading.Lock()

    def keys(self) -> Keys:
        """The credentials of this moment; a role's are fetched anew before they end.

        Raises:
            StoreError: there are none.
        """
        if self._access is not None:
            token = self._access.session_token
            secret = self._access.secret.get_secret_value()
            return Keys(self._access.access_key, secret, token.get_secret_value() if token else None)
        from botocore.exceptions import BotoCoreError

        try:
            with self._lock:
                self._found = self._found or _find_credentials()
                if self._found is not None:
                    return _keys_of(self._found)
        except BotoCoreError as exc:
            # `from None`: what a credential helper printed may stand in the library's text.
            raise StoreError(f"no credentials for S3 ({type(exc).__name__})") from None
        raise StoreError("no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")

    def sign(self, method: str, url: str, headers: Mapping[str, str], *, sha256: str) -> dict[str, str]:
        """All headers of a request whose body has this SHA-256, the signature among them."""
        from botocore.auth import S3SigV4Auth

        class KnownBody(S3SigV4Auth):  # type: ignore[misc]  # an untyped library
            def payload(self, _request: Any) -> str:
                return sha256

        return dict(_signed(KnownBody, self.keys(), self._region, method, url, headers).headers.items())

    def presign(self, url: str, *, expires_s: int) -> Presigned:
        """An address of a GET that whoever has it may ask, for so many seconds."""
        from botocore.auth import S3SigV4QueryAuth

        def make(*args: Any) -> Any:
            return S3SigV4QueryAuth(*args, expires=expires_s)

        keys = self.keys()
        return Presigned(str(_signed(make, keys, self._region, "GET", url, {}).url), keys.expires_at)


def _keys_of(found: "Credentials") -> Keys:
    """The keys of this moment with their end. Nobody else may refresh them meanwhile.

    Source: `RefreshableCredentials` of botocore/credentials.py, which tells its end to nobody else.
    """
    frozen = found.get_frozen_credentials()
    ends = getattr(found, "_expiry_time", None)
    expires_at = None if ends is None else float(ends.timestamp())
    return Keys(str(frozen.access_key), str(frozen.secret_key), frozen.token, expires_at)


def _signed(make: Any, keys: Keys, region: str, method: str, url: str, headers: Mapping[str, str]) -> Any:
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    # It logs each signature, and what was signed, at DEBUG.
    logging.getLogger("botocore.auth").setLevel(logging.INFO)
    request = AWSRequest(method=method, url=url, headers=dict(headers))
    make(Credentials(keys.access_key, keys.secret, keys.token), "s3", region).add_auth(request)
    return request


def _find_credentials() -> "Credentials | None":
    from botocore.session import Session

    return Session().get_credentials()
