"""One thread's way to ask a source: a connection kept alive, redirects, renewed addresses, the answer."""

import contextlib
import random
from collections.abc import Callable

from comfyfarm.cache.transfer.answer import (
    SNIFF_BYTES,
    Answer,
    Asked,
    Meaning,
    is_expired,
    judge,
    sniff,
)
from comfyfarm.cache.transfer.connection import Broken, Connection, Head, Untrusted
from comfyfarm.cache.transfer.limits import Limits
from comfyfarm.cache.transfer.origin import Origin, target_of
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
        is_silent: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.is_busy = is_busy
        """The server wants fewer connections or requests."""
        self.is_refused = is_refused
        """No connection could be made."""
        self.is_silent = is_silent
        """What was waited for did not come in time."""


class Changed(Exception):
    """Another file stands there than at the begin of this transfer."""


def wait_s(tries: int, again: Again, limits: Limits) -> float:
    """How long to wait before the next try: full jitter, and never less than the server asks for."""
    return _backoff_s(tries, limits) + (again.retry_after_s or 0.0)


def _headers(hop: Hop, asked: Asked, *, guard: bool) -> dict[str, str]:
    headers = {"Accept": "*/*", "User-Agent": "comfyfarm"} | dict(hop.headers)
    headers["Accept-Encoding"] = "identity"
    if asked.is_ranged:
        headers["Range"] = f"bytes={asked.start}-{asked.end - 1}"
    if asked.etag and guard:
        headers["If-Match"] = asked.etag
    return headers


def _backoff_s(tries: int, limits: Limits) -> float:
    return random.uniform(0, min(limits.most_wait_s, limits.first_wait_s * 2**tries))


class Asker:
    """Asks for stretches of one file, one after the other."""

    def __init__(
        self,
        address: str,
        route: Route,
        *,
        limits: Limits,
        check: Callable[[], None],
        wait: Callable[[float], None],
    ) -> None:
        """`check` and `wait` (a number of seconds) raise once the transfer is to end."""
        self._address = address
        self._route = route
        self._limits = limits
        self._check = check
        self._wait = wait
        self._connection: Connection | None = None
        self._ahead: tuple[Hop, Asked] | None = None
        """What was asked for on this connection before its turn."""

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
        hop, refusals = self._route.begin(), 0
        if self._ahead is not None and self._ahead != (hop, asked):
            self.disconnect()
        while True:
            self._check()
            head = self._send(hop, asked, guard=guard_redirected is (hop.redirects > 0))
            answer = judge(head, asked, now=_CLOCK.now())
            match self._seen(answer, hop):
                case Meaning.BYTES | Meaning.WHOLE:
                    self._route.settle(hop)
                    return answer, hop
                case Meaning.MOVED:
                    hop = self._route.follow(hop, answer.location)
                case Meaning.REFUSED:
                    refusals += 1
                    self._route.refused(hop, times=refusals)
                    self.disconnect()
                    self._wait(_backoff_s(refusals, self._limits))
                    hop = self._route.begin()
                case _:
                    self._give_up(answer)
            self.disconnect()

    def connect_ahead(self) -> None:
        """Have a connection ready to the source itself. A failure shows once it is asked."""
        with contextlib.suppress(Broken, Untrusted, SourceFailed):
            self._connect(self._route.begin().origin)

    def ask_ahead(self, asked: Asked, *, guard_redirected: bool | None) -> None:
        """Ask for what is next while the present body still comes: its answer follows at once.

        A server that does not take this well is asked so no more in this transfer; `ask` asks anew then.
        """
        hop, connection = self._route.begin(), self._connection
        if connection is None or self._ahead or not self._route.may_ask_ahead:
            return
        if connection.origin == hop.origin and connection.is_kept:
            self._ahead = hop, asked
            with contextlib.suppress(Broken):  # which whoever reads the body will see
                headers = _headers(hop, asked, guard=guard_redirected is (hop.redirects > 0))
                connection.send(target_of(hop.url), headers)

    def receive(self, view: memoryview) -> int:
        """Bytes of the answer's body; 0 at its end.

        Raises:
            Again: the connection broke.
        """
        try:
            return self._connection.receive(view) if self._connection else 0
        except Broken as exc:
            raise Again(exc.reason, is_silent=exc.is_silent) from None

    def end_answer(self, *, is_whole: bool) -> None:
        """Done with a body, to its end or not: the connection is kept where it can be asked again."""
        if not is_whole or self._connection is None or not self._connection.end_answer():
            self.disconnect()

    def disconnect(self) -> None:
        """The next request needs a new connection."""
        if self._ahead is not None:
            self._ahead, self._route.may_ask_ahead = None, False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """From another thread: end whatever this one waits for."""
        if (connection := self._connection) is not None:
            connection.abort()

    def _send(self, hop: Hop, asked: Asked, *, guard: bool) -> Head:
        try:
            return self._send_once(hop, _headers(hop, asked, guard=guard))
        except Broken as exc:
            is_refused, is_silent = exc.is_refused, exc.is_silent
            raise Again(exc.reason, is_busy=is_refused, is_refused=is_refused, is_silent=is_silent) from None
        except Untrusted as exc:
            raise SourceFailed(self._address, str(exc)) from None

    def _send_once(self, hop: Hop, headers: dict[str, str]) -> Head:
        connection = self._connection
        if connection is not None and connection.origin == hop.origin and connection.is_open:
            try:
                if self._ahead is None:
                    return connection.ask(target_of(hop.url), headers)
                head = connection.head(patience_s=self._limits.silent_s)
                self._ahead = None
                return head
            except Broken:
                self._check()  # else it was kept alive for longer than the server liked: no fault of anyone
        return self._connect(hop.origin).ask(target_of(hop.url), headers)

    def _connect(self, origin: Origin) -> Connection:
        self.disconnect()
        self._connection = connection = Connection(origin, limits=self._limits, check=self._check)
        connection.open()
        return connection

    def _seen(self, answer: Answer, hop: Hop) -> Meaning:
        """What it means, by the begin of its body as well."""
        is_bad_request = answer.status == 400 and "x-amz-signature=" in hop.url.lower()
        return Meaning.REFUSED if is_bad_request and is_expired(self._body_begin()) else answer.meaning

    def _give_up(self, answer: Answer) -> None:
        what = sniff(self._body_begin()) if answer.is_odd else ""
        self.disconnect()
        if answer.meaning is Meaning.CHANGED:
            raise Changed
        if answer.meaning is Meaning.AGAIN and (answer.retry_after_s or 0) <= self._limits.patience_s:
            raise Again(answer.reason, retry_after_s=answer.retry_after_s, is_busy=answer.is_busy)
        if answer.meaning is Meaning.AGAIN:
            longest = f"{self._limits.patience_s:.0f} s"
            raise SourceFailed(self._address, f"{answer.reason}, and asks to wait for longer than {longest}")
        raise SourceFailed(self._address, answer.reason + (what and f" ({what})"))

    def _body_begin(self) -> bytes:
        room = bytearray(SNIFF_BYTES)
        try:
            return bytes(room[: self.receive(memoryview(room))])
        except Again:
            return b""
