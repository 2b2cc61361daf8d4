"""Where one source is asked: its own address, or where that redirects to, for all connections of a transfer.

A redirect's target is remembered until it is refused; then the source's own address is asked again, and once
that is refused too, made anew.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin

from comfyfarm.cache.places.request import Addressed
from comfyfarm.cache.transfer.origin import Origin, origin_of
from comfyfarm.cache.transfer.source import SourceFailed
from comfyfarm.errors import FarmError

MAX_REDIRECTS = 5
_DENIED = "access denied; check the credentials"


@dataclass(frozen=True)
class Hop:
    """One address to ask, with what it needs. Never printed."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    origin: Origin
    redirects: int = 0
    generation: int = 0
    """Grows whenever what was known is thrown away."""


class Route:
    """Shared by the connections of one transfer."""

    def __init__(self, source: Addressed, *, renewals: int) -> None:
        self._source = source
        self._renewals = renewals
        self._lock = threading.Lock()
        self._settled: Hop | None = None
        self._generation = 0
        self._in_a_row = 0
        self.may_ask_ahead = True
        """No server has taken it ill to be asked before its last answer was through."""

    def begin(self) -> Hop:
        """Where to ask first.

        Raises:
            SourceFailed: the source cannot say.
        """
        with self._lock:
            if self._settled is not None:
                return self._settled
            generation = self._generation
        try:
            request = self._source.request()
        except FarmError as exc:
            # Not the cause: it may hold the address.
            raise SourceFailed(self._source.address, str(exc)) from None
        return self._hop(request.url, request.headers, 0, generation)

    def follow(self, hop: Hop, location: str) -> Hop:
        """Where a redirect leads. Another host is told nothing of what was given for this one.

        Raises:
            SourceFailed: too many redirects, or one that is not to be followed.
        """
        if hop.redirects >= MAX_REDIRECTS:
            raise SourceFailed(self._source.address, f"redirects more than {MAX_REDIRECTS} times")
        try:
            url = urljoin(hop.url, location)
        except ValueError:
            url = ""
        to = self._hop(url, hop.headers, hop.redirects + 1, hop.generation)
        if hop.origin.scheme == "https" and to.origin.scheme == "http":
            raise SourceFailed(self._source.address, "redirects to an address without TLS")
        return to if _is_same_host(hop.origin, to.origin) else _bare(to)

    def settle(self, hop: Hop) -> None:
        """It gave what was asked: the others ask there as well."""
        with self._lock:
            if hop.generation == self._generation:
                self._settled = hop
                self._in_a_row = 0

    def refused(self, hop: Hop, *, times: int = 1) -> None:
        """It was answered 401 or 403. Returns when it is worth asking anew, from `begin`.

        `times`: for this request, at whatever address. What others get meanwhile does not count for it.

        Raises:
            SourceFailed: there is no other address to be had.
        """
        with self._lock:
            if times > self._renewals:
                raise SourceFailed(self._source.address, _DENIED)
            if hop.generation != self._generation:
                return  # another connection saw it first
            if self._in_a_row >= self._renewals or (hop.redirects == 0 and not self._renew()):
                raise SourceFailed(self._source.address, _DENIED)
            self._in_a_row += 1
            self._generation += 1
            self._settled = None

    def _renew(self) -> bool:
        try:
            return self._source.renew()
        except FarmError:
            return False

    def _hop(self, url: str, headers: Mapping[str, str], redirects: int, generation: int) -> Hop:
        origin = origin_of(url)
        if origin is None:
            raise SourceFailed(self._source.address, "leads to something that is no address of the web")
        if any("\n" in text or "\r" in text for text in (*headers, *headers.values())):
            raise SourceFailed(self._source.address, "a header with a line break cannot be sent")
        return Hop(url, headers, origin, redirects, generation)


def _is_same_host(one: Origin, other: Origin) -> bool:
    is_upgrade = one.scheme == "http" and other.scheme == "https"
    return one.host == other.host and (one.port == other.port or (is_upgrade and other.port == 443))


def _bare(hop: Hop) -> Hop:
    return Hop(hop.url, {}, hop.origin, hop.redirects, hop.generation)
