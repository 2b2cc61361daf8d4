"""What the threads of one transfer share, as each of them sees it."""

from typing import Protocol

from comfyfarm.cache.transfer.answer import Answer
from comfyfarm.cache.transfer.landing import Landing
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.route import Hop, Route
from comfyfarm.cache.transfer.stretches import Stretch


class Work(Protocol):
    """What the threads of one transfer share. All of it may be called from any of them."""

    address: str
    size: int
    landing: Landing
    limits: Limits
    route: Route
    etag: str | None
    is_etag_redirected: bool | None
    is_ready: bool
    """An answer was good: size and ETag are known."""
    has_bytes: bool
    """Some byte of a body has come."""
    has_ranges: bool
    """A range was answered with that range."""
    is_streamed: bool
    """The source gives the whole file only: by one request, of one thread."""

    def check(self) -> None:
        """Raise once the transfer is to end."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait, and raise as soon as the transfer is to end."""
        ...

    def take(self) -> Stretch | None:
        """The next stretch; None when this thread is of no more use."""
        ...

    def take_ahead(self) -> Stretch | None:
        """One more for a thread that is nearly done with its own, if there is one and all is well."""
        ...

    def advance(self, stretch: Stretch, at: int) -> bool:
        """Everything before `at` is here; whether there is more to do in this stretch."""
        ...

    def end(self, stretch: Stretch) -> None:
        """Nobody needs to go on with it."""
        ...

    def give_back(self, stretch: Stretch) -> None:
        """Another thread is to go on with it."""
        ...

    def learn(self, answer: Answer, hop: Hop, stretch: Stretch, *, round_trip_s: float) -> None:
        """An answer was good. Where it brings the whole file, this stretch is all that remains."""
        ...

    def complain(self, retry_after_s: float) -> bool:
        """The server wants fewer connections, and none before then; whether this one is one too many."""
        ...

    def may_wait(self, seconds: float) -> bool:
        """The server asks for that: whether it has not done so for too long by now."""
        ...

    def count(self, taken_bytes: int) -> None:
        """So many bytes have landed."""
        ...
