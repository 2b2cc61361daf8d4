"""A signed list: addresses of a mirror's files that need no credentials, until they expire.

`comfyfarm mirror sign` makes it where the credentials are; hosts without any read it from a path or address.
Whoever makes it anew in time, under the same name, keeps the transfers of those hosts going.
"""

import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from comfyfarm.addresses import mask, read_bytes
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.clock import Clock, SystemClock
from comfyfarm.errors import FarmError, InputError, StoreError, TryLater
from comfyfarm.ids import Sha256

_log = logging.getLogger(__name__)

LIMIT_BYTES = 64 << 20
RENEW_BEFORE_S = 60.0
"""So long before it expires the list is read again: a request may take its time to arrive."""
REREAD_EACH_S = 2.0
"""So often while it is about to expire: many connections ask at once."""
_REMEDY = "make it anew with `comfyfarm mirror sign`"


class SignedFile(BaseModel):
    """What a signed list says. Its addresses are secrets: it is never printed."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    version: Literal[1] = 1
    expires: AwareDatetime
    files: Mapping[Sha256, str]
    """SHA-256 to address."""

    def __repr__(self) -> str:
        """Without addresses."""
        return f"SignedFile(expires={self.expires!r}, {len(self.files)} files)"

    __str__ = __repr__

    def text(self) -> str:
        """As it is written."""
        return self.model_dump_json(indent=2) + "\n"


class SignedList:
    """The list at `place`, read when it is first needed, and again when it is about to expire."""

    def __init__(self, place: str, *, clock: Clock | None = None) -> None:
        """`place`: a path or an address (`https://`, `s3://`)."""
        self._place = place
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._list: SignedFile | None = None
        self._read_at = float("-inf")

    @property
    def address(self) -> str:
        """Of the list, fit for a log."""
        return mask(self._place)

    def read(self) -> SignedFile:
        """Read the list, for a command that will need it: what is wrong with it is said at once.

        Raises:
            InputError: there is none, or it is something else.
            StoreError: it has expired.
            TryLater: the address did not answer.
        """
        with self._lock:
            found = self._list = self._load()
        if expired := self._expired(found):
            raise StoreError(f"{self.address}: {expired}")
        return found

    def addressed(self, sha256: str) -> Addressed | None:
        """A file's address in the list; None when the list does not have it.

        Raises:
            InputError: there is no list, or it is something else.
            TryLater: its address did not answer.
        """
        with self._lock:
            if self._list is None:
                try:
                    self._list = self._load()
                except FarmError as exc:
                    # Whoever asks a source names it beside its failure.
                    kind = InputError if isinstance(exc, InputError) else TryLater
                    raise kind(str(exc).removeprefix(f"{self.address}: ")) from None
            return _SignedSource(self, sha256) if sha256 in self._list.files else None

    def url(self, sha256: str) -> str:
        """The address as of now; the list is read again when it is about to expire.

        Raises:
            StoreError: the list has expired, or does not have the file any more. Whose address that is, is
                not said: whoever asks a source names it beside its failure.
        """
        with self._lock:
            is_old = self._list is None or self._left_s(self._list) < RENEW_BEFORE_S
            if is_old and self._clock.monotonic() - self._read_at >= REREAD_EACH_S:
                self._reload()
            found = self._list
        if found is None:
            raise StoreError("the signed list cannot be read")
        if expired := self._expired(found):
            raise StoreError(expired)
        if sha256 not in found.files:
            raise StoreError(f"the signed list does not have {sha256} any more; {_REMEDY}")
        return found.files[sha256]

    def renew(self, sha256: str, *, after: str | None) -> bool:
        """`after` was refused: whether the list, read again, has another address for the file."""
        with self._lock:
            if not self._is_other(sha256, after):  # else another file's transfer has renewed it already
                self._reload()
            return self._is_other(sha256, after)

    def _is_other(self, sha256: str, url: str | None) -> bool:
        found = self._list.files.get(sha256) if self._list is not None else None
        return found is not None and found != url

    def _reload(self) -> None:
        try:
            fresh = self._load()
        except FarmError as exc:
            _log.warning("the signed list cannot be read again: %s", exc)
            return
        if self._list is not None and fresh.files != self._list.files:
            _log.info("%s: read again, good until %s", self.address, fresh.expires)
        self._list = fresh

    def _load(self) -> SignedFile:
        self._read_at = self._clock.monotonic()
        data = read_bytes(self._place, limit_bytes=LIMIT_BYTES)
        try:
            return SignedFile.model_validate_json(data)
        except ValidationError as exc:
            # `from None`: the input that a traceback would show holds signatures.
            where = ".".join(str(step) for step in exc.errors(include_input=False)[0]["loc"][:1])
            raise InputError(f"{self.address}: is no signed list ({where or 'no JSON'}); {_REMEDY}") from None

    def _left_s(self, found: SignedFile) -> float:
        return found.expires.timestamp() - self._clock.now()

    def _expired(self, found: SignedFile) -> str:
        """That it has, with what to do; empty where it has not."""
        if self._left_s(found) > 0:
            return ""
        at = found.expires.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"the signed list expired at {at}; {_REMEDY}"


class _SignedSource:
    """One file of the list."""

    def __init__(self, signed: SignedList, sha256: str) -> None:
        self._signed = signed
        self._sha256 = sha256
        self._given: str | None = None

    @property
    def address(self) -> str:
        """The list's and the file's name in it."""
        return f"{self._signed.address}#{self._sha256[:12]}"

    def request(self) -> Request:
        """Its address as of now."""
        self._given = self._signed.url(self._sha256)
        return Request(self._given)

    def renew(self) -> bool:
        """Whether the list, read again, has another address."""
        return self._signed.renew(self._sha256, after=self._given)


def signed_file(urls: Mapping[str, str], *, expires_at: float) -> SignedFile:
    """A list of these addresses, which are good until `expires_at` (Unix seconds)."""
    return SignedFile(expires=datetime.fromtimestamp(expires_at, tz=UTC), files=dict(sorted(urls.items())))
