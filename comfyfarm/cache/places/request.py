"""How one file is asked for over HTTP: an address with headers, that may have to be made anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Request:
    """What to ask, of whom. Never printed: the address may be signed, a header may hold a token."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Dropped on a redirect to another host, `Authorization` among them."""


class Addressed(Protocol):
    """One file at one source."""

    @property
    def address(self) -> str:
        """Of the source, masked: fit for a log or an error."""
        ...

    def request(self) -> Request:
        """How to ask for it now; cheap, from any thread. Raises `StoreError` when it cannot be said."""
        ...

    def renew(self) -> bool:
        """The last one was answered 401 or 403: make a new one. False when none is to be had."""
        ...
