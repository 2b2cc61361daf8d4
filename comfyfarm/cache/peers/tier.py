"""Files from other hosts, asked for before the mirror, such that the mirror gives each of them about once.

Hosts that get the same plan at the same moment agree, without a word, on who begins with which file (see
`turns`); the others wait for as long as it comes, take it from whoever has it, and go to the mirror when
nothing moves. No peer is trusted: whoever takes a file from one checks its SHA-256, and tells when it lied.
"""

import logging
import queue
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from comfyfarm.cache.blobs import blob_key
from comfyfarm.cache.peers.asking import ANSWER_S, CONNECT_S, PeerAnswer, PeerGone, Presence, ask
from comfyfarm.cache.peers.protocol import bearer, checked_token
from comfyfarm.cache.peers.roster import Roster
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.clock import Clock, SystemClock, pause

_log = logging.getLogger(__name__)

MOST_SOURCES = 3
"""So many peers are offered for one file; after that the mirror is the better bet."""
GRACE_S = 1.0
"""So long each host waits for the one whose turn is before its own to begin."""
MOST_TURNS = 4
"""Nobody waits for more turns than that."""
STALL_S = 10.0
"""A file that is coming and does not grow for so long is waited for no longer."""
SHORT_STALL_S = 3.0
"""Likewise, where our own turn comes before that peer's."""
LONGEST_S = 60.0
"""Nor longer than this, and what the file takes at `SLOWEST_BYTES_PER_S`, whatever peers say."""
SLOWEST_BYTES_PER_S = 4 << 20
_FIRST_POLL_S = 0.2
_LAST_POLL_S = 1.0
_STOP_WITHIN_S = 0.1

Stop = Callable[[], None]
"""Called often; raises when the transfer is to end."""


@dataclass(frozen=True)
class PeerFile:
    """One file at one peer."""

    address: str
    """Holds no secret."""
    token: str | None = field(repr=False)

    def request(self) -> Request:
        """How to ask for it."""
        return Request(self.address, bearer(self.token))

    def renew(self) -> bool:
        """There is one token only."""
        return False


class PeerTier:
    """The peers of one host. For any number of files and threads at once."""

    def __init__(
        self, addresses: Sequence[str], token: str | None, own_id: str, *, clock: Clock | None = None
    ) -> None:
        """Nothing is asked yet.

        Args:
            addresses: `host:port` or `http(s)://host[:port]`; our own among them does no harm.
            token: what the peers want to be shown.
            own_id: of this host's cache (`identity.cache_id`).
            clock: for waiting times.

        Raises:
            UsageError: an address that is none, or a token that cannot be sent.
        """
        self._token = None if token is None else checked_token(token)
        self._clock = clock or SystemClock()
        self._roster = Roster(addresses, own_id, self._clock)

    def sources(self, model: Pinned, stop: Stop) -> Iterator[Addressed]:
        """Peers that have the file, one after the other; at the end of them it is the mirror's turn.

        Blocks while another host is about to have it, so it wants a thread; and better no open landing, which
        tells the others that the file is coming here.

        Args:
            model: the file.
            stop: what it raises comes out of here.
        """
        offered: set[str] = set()
        waiting = _Waiting(self._clock, longest_s=LONGEST_S + model.size / SLOWEST_BYTES_PER_S)
        while len(offered) < MOST_SOURCES:
            answers = self._ask(model, offered, stop)
            here = [url for url, answer in answers.items() if answer.presence is Presence.HERE]
            random.shuffle(here)  # so that the load spreads over all that have it
            for url in here[: MOST_SOURCES - len(offered)]:
                offered.add(url)
                yield PeerFile(f"{url}/{blob_key(model.sha256)}", self._token)
            if not here and not self._is_worth_waiting(model, waiting, answers):
                return
            if not here:
                self._wait(waiting.poll_s(), stop)

    def distrust(self, address: str) -> None:
        """Bytes from this address (of a peer, or of a file there) were wrong: never ask that peer again."""
        if (url := self._roster.url_of(address)) is not None:
            self._roster.distrust(url)

    def troubles(self) -> Mapping[str, str]:
        """Peers that are left alone, for a while or for good, and why."""
        return self._roster.troubles()

    def rest(self, address: str, reason: str) -> None:
        """A transfer from this address broke off: leave that peer alone for a while."""
        if (url := self._roster.url_of(address)) is not None:
            self._roster.rest(url, reason)

    def _is_worth_waiting(
        self, model: Pinned, waiting: "_Waiting", answers: Mapping[str, PeerAnswer]
    ) -> bool:
        ahead = self._roster.ahead(model.sha256)
        growing, stalled = waiting.look(answers, ahead)
        if waiting.is_over():
            return False
        turns_before = min(len(set(ahead) - stalled), MOST_TURNS)
        return bool(growing) or waiting.idle_s() < turns_before * GRACE_S

    def _ask(self, model: Pinned, but: set[str], stop: Stop) -> dict[str, PeerAnswer]:
        """Ask all at once, each in its own thread: one that is gone delays nobody for more than its time."""
        urls = [url for url in self._roster.askable(model.sha256) if url not in but]
        heard: queue.SimpleQueue[tuple[str, PeerAnswer | PeerGone]] = queue.SimpleQueue()
        for url in urls:
            threading.Thread(
                target=self._ask_one, args=(url, model, heard), name="ask-peer", daemon=True
            ).start()
        answers: dict[str, PeerAnswer] = {}
        silent = set(urls)
        ends = self._clock.monotonic() + CONNECT_S + ANSWER_S + 1
        while silent and self._clock.monotonic() < ends:
            stop()
            try:
                url, answer = heard.get(timeout=_STOP_WITHIN_S)
            except queue.Empty:
                continue
            silent.discard(url)
            self._note(url, answer, answers)
        for url in silent:  # such as a name that the DNS does not answer for
            self._roster.rest(url, "no answer")
        return answers

    def _ask_one(
        self, url: str, model: Pinned, heard: "queue.SimpleQueue[tuple[str, PeerAnswer | PeerGone]]"
    ) -> None:
        try:
            heard.put((url, ask(url, model, token=self._token)))
        except PeerGone as exc:
            heard.put((url, exc))

    def _note(self, url: str, answer: PeerAnswer | PeerGone, answers: dict[str, PeerAnswer]) -> None:
        if isinstance(answer, PeerGone):
            self._roster.rest(url, str(answer))
            return
        self._roster.heard(url, answer)
        if not self._roster.is_own(url):
            answers[url] = answer

    def _wait(self, seconds: float, stop: Stop) -> None:
        ends = self._clock.monotonic() + seconds
        while (left := ends - self._clock.monotonic()) > 0:
            stop()
            pause(min(left, _STOP_WITHIN_S))


class _Waiting:
    """How long one file has been waited for, and whether it grows anywhere meanwhile."""

    def __init__(self, clock: Clock, *, longest_s: float) -> None:
        self._clock = clock
        self._began = self._moved = clock.monotonic()
        self._longest_s = longest_s
        self._seen: dict[str, tuple[str, float]] = {}
        self._poll_s = _FIRST_POLL_S

    def look(self, answers: Mapping[str, PeerAnswer], ahead: Collection[str]) -> tuple[set[str], set[str]]:
        """At which peers the file is coming: those where it grew of late, and those where it did not.

        Those `ahead` of us have longer to move; so of two that wait for each other one goes on soon.
        """
        now = self._clock.monotonic()
        growing: set[str] = set()
        stalled: set[str] = set()
        for url, answer in answers.items():
            if answer.presence is not Presence.COMING:
                continue
            progress, since = self._seen.get(url, ("", now))
            if progress != answer.progress:
                since = now
            self._seen[url] = (answer.progress, since)
            patience_s = STALL_S if url in ahead else SHORT_STALL_S
            (growing if now - since < patience_s else stalled).add(url)
        if growing:
            self._moved = now
        return growing, stalled

    def idle_s(self) -> float:
        """Seconds since the file last came to anybody, or since the beginning."""
        return self._clock.monotonic() - self._moved

    def is_over(self) -> bool:
        """Whether it took too long, whatever peers say."""
        return self._clock.monotonic() - self._began > self._longest_s

    def poll_s(self) -> float:
        """How long to wait before asking again; a little longer each time."""
        now, self._poll_s = self._poll_s, min(self._poll_s * 1.2, _LAST_POLL_S)
        return now
