"""One thread's way to ask a source: a connection kept alive, redirects, renewed addresses, the answer."""

import random
from collections.abc import Callable

from comfyfarm.cache.transfer.answer import SNIFF_BYTES, Answer, Asked, Meaning, judge, sniff
from comfyfarm.cache.transfer.connection import Broken, Connection, Head, Untrusted
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.origin import target_of
from comfyfarm.cache.transfer.route import Hop, Route
from comfyfarm.cache.transfer.source import SourceFailed
from comfyfarm.clock import SystemClock

_CLOCK = SystemClock()


class Again(Exception):
    """Not now; it may go better in a moment."""

    def __init__(
        self,
        reason: str,
        *,
        retry_after_s: float | None = None,
        is_busy: bool = False,
        is_refused: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.is_busy = is_busy
        """The server wants fewer connections or requests."""
        self.is_refused = is_refused
        """No connection could be made."""


class Changed(Exception):
    """Another file stands there than at the begin of this transfer."""


def wait_s(tries: int, again: Again, limits: Limits) -> float:
    """How long to wait before the next try: full jitter, and never less than the server asks for."""
    backoff = random.uniform(0, min(limits.most_wait_s, limits.first_wait_s * 2**tries))
    return backoff + (again.retry_after_s or 0.0)


class Asker:
    """Asks for stretches of one file, one after the other."""

    def __init__(self, address: str, route: Route, *, limits: Limits, check: Callable[[], None]) -> None:
        self._address = address
        self._route = route
        self._limits = limits
        self._check = check
        self._connection: Connection | None = None
        self._is_aborted = False

    @property
    def round_trip_s(self) -> float:
        """Of the connection of the last answer."""
        return self._connection.round_trip_s if self._connection else 0.0

    def ask(self, asked: Asked, *, guard_redirected: bool | None) -> tuple[Answer, Hop]:
        """The answer to a request whose body is the file's, and where it came from.

        Args:
            asked: what to ask for.
            guard_redirected: whether the ETag came from a redirect's target: it is only told there.

        Raises:
            Again, Changed: the answer is none, or not now.
            SourceFailed: it will not be one.
        """
        hop = self._route.begin()
        while True:
            self._check()
            head = self._send(hop, asked, guard=guard_redirected is (hop.redirects > 0))
            answer = judge(head, asked, now=_CLOCK.now())
            match answer.meaning:
                case Meaning.BYTES | Meaning.WHOLE:
                    self._route.settle(hop)
                    return answer, hop
                case Meaning.MOVED:
                    hop = self._route.follow(hop, answer.location)
                case Meaning.REFUSED:
                    self._route.refused(hop)
                    hop = self._route.begin()
                case _:
                    self._give_up(answer)
            self.disconnect()

    def receive(self, view: memoryview) -> int:
        """Bytes of the answer's body; 0 at its end.

        Raises:
            Again: the connection broke.
        """
        try:
            return self._connection.receive(view) if self._connection else 0
        except Broken as exc:
            raise Again(exc.reason) from None

    def end_answer(self, *, is_whole: bool) -> None:
        """Done with a body, to its end or not: the connection is kept where it can be asked again."""
        if not is_whole or self._connection is None or not self._connection.end_answer():
            self.disconnect()

    def disconnect(self) -> None:
        """The next request needs a new connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: end whatever this one waits for."""
        if (connection := self._connection) is not None:
            connection.abort()

    def _send(self, hop: Hop, asked: Asked, *, guard: bool) -> Head:
        headers = {"Accept": "*/*", "User-Agent": "comfyfarm"} | dict(hop.headers)
        headers["Accept-Encoding"] = "identity"
        if asked.is_ranged:
            headers["Range"] = f"bytes={asked.start}-{asked.end - 1}"
        if asked.etag and guard:
            headers["If-Match"] = asked.etag
        try:
            return self._send_once(hop, headers)
        except Broken as exc:
            raise Again(exc.reason, is_busy=exc.is_refused, is_refused=exc.is_refused) from None
        except Untrusted as exc:
            raise SourceFailed(self._address, str(exc)) from None

    def _send_once(self, hop: Hop, headers: dict[str, str]) -> Head:
        connection = self._connection
        if connection is not None and connection.origin == hop.origin and connection.answers:
            try:
                return connection.ask(target_of(hop.url), headers)
            except Broken:
                self._check()  # else it was kept alive for longer than the server liked: no fault of anyone
        self.disconnect()
        self._connection = connection = Connection(hop.origin, limits=self._limits, check=self._check)
        connection.open()
        return connection.ask(target_of(hop.url), headers)

    def _give_up(self, answer: Answer) -> None:
        what = self._sniffed() if answer.is_odd else ""
        self.disconnect()
        if answer.meaning is Meaning.CHANGED:
            raise Changed
        if answer.meaning is Meaning.AGAIN and (answer.retry_after_s or 0) <= self._limits.patience_s:
            raise Again(answer.reason, retry_after_s=answer.retry_after_s, is_busy=answer.is_busy)
        if answer.meaning is Meaning.AGAIN:
            raise SourceFailed(self._address, f"{answer.reason}, and asks for {answer.retry_after_s:.0f} s")
        raise SourceFailed(self._address, answer.reason + (what and f" ({what})"))

    def _sniffed(self) -> str:
        room = bytearray(SNIFF_BYTES)
        try:
            return sniff(bytes(room[: self.receive(memoryview(room))]))
        except Again:
            return ""
