"""Files of buckets and web servers as addresses that any HTTP engine can ask for."""

import threading
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from comfyfarm.cache.places.request import Request
from comfyfarm.cache.places.signing import Presigned
from comfyfarm.clock import Clock, SystemClock

PRESIGNED_FOR_S = 3600
PRESIGNED_SPARE_S = 600
"""An address is made anew when it has less left: a part that is asked for with it must still begin."""


class PresignedObject:
    """An object of a bucket, by an address that is signed on this machine."""

    def __init__(self, address: str, sign: Callable[[int], Presigned], *, clock: Clock | None = None) -> None:
        """`sign`: makes an address that is good for so many seconds; `address` is the masked one."""
        self._address = address
        self._sign = sign
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._request: Request | None = None
        self._good_until = 0.0

    @property
    def address(self) -> str:
        """Of the object, masked."""
        return self._address

    def request(self) -> Request:
        """How to ask for it now.

        Raises:
            StoreError: there are no credentials.
        """
        with self._lock:
            if self._request is None or self._clock.now() > self._good_until:
                self._make()
            return self._request or Request("")

    def renew(self) -> bool:
        """Sign anew, as whom the credentials say by now."""
        with self._lock:
            self._make()
        return True

    def _make(self) -> None:
        now = self._clock.now()
        signed = self._sign(PRESIGNED_FOR_S)
        # Where the credentials end before, it does as well.
        ends_at = now + PRESIGNED_FOR_S
        self._good_until = min(ends_at, signed.ends_at or ends_at) - PRESIGNED_SPARE_S
        self._request = Request(signed.url)


class WebFile:
    """A file of a web server, by its own address and whatever header lets us in."""

    def __init__(self, address: str, url: str, headers: Mapping[str, str]) -> None:
        self._address = address
        self._request = Request(url, headers)

    @property
    def address(self) -> str:
        """Of the file, masked."""
        return self._address

    def request(self) -> Request:
        """How to ask for it: always the same."""
        return self._request

    def renew(self) -> bool:
        """There is no other address."""
        return False


def below(url: str, name: str) -> str:
    """The address of a file under a folder's; the query (a token) stays."""
    if not name:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(name, safe='/~')}"))
