"""What a host knows of its peers: which live, which is itself, which lied, which fetch something."""

import logging
import random
from collections.abc import Sequence

from comfyfarm.cache.peers.asking import PeerAnswer
from comfyfarm.cache.peers.protocol import peer_url
from comfyfarm.cache.peers.turns import turns
from comfyfarm.clock import Clock

_log = logging.getLogger(__name__)

REST_S = 30.0
"""A peer that did not answer is not asked again for so long."""
QUIET_S = 5.0
"""A peer that fetched nothing for so long takes part in no plan: nobody waits for its turn."""
MOST_ASKED = 16
"""Of many peers, so many are asked about a file: those whose turn comes first, and some by chance."""


class _Peer:
    """One address. Simple fields, set from any thread; the last word counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.peer_id: str | None = None
        self.rests_until = 0.0
        self.is_distrusted = False
        self.trouble = ""
        """Why it was last left alone."""
        self.quiet_since: float | None = None


class Roster:
    """The peers of one host."""

    def __init__(self, addresses: Sequence[str], own_id: str, clock: Clock) -> None:
        self._peers = {url: _Peer(url) for url in map(peer_url, addresses)}
        self._own_id = own_id
        self._clock = clock

    def askable(self, sha256: str) -> tuple[str, ...]:
        """Whom to ask about a file."""
        there = [peer for peer in self._peers.values() if self._is_there(peer)]
        if len(there) <= MOST_ASKED:
            return tuple(peer.url for peer in there)
        known = {peer.peer_id: peer.url for peer in there if peer.peer_id is not None}
        first = [known[name] for name in turns(sha256, known)[: MOST_ASKED // 2]]
        rest = [peer.url for peer in there if peer.url not in first]
        return (*first, *random.sample(rest, MOST_ASKED - len(first)))

    def heard(self, url: str, answer: PeerAnswer) -> None:
        """A peer answered."""
        peer = self._peers[url]
        if peer.peer_id is None and answer.peer_id == self._own_id:
            _log.info("peer %s is this host itself", url)
        peer.peer_id = answer.peer_id
        if answer.is_busy:
            peer.quiet_since = None
        elif peer.quiet_since is None:
            peer.quiet_since = self._clock.monotonic()

    def rest(self, url: str, reason: str) -> None:
        """Do not ask it for a while."""
        _log.warning("peer %s is left alone for %.0f s: %s", url, REST_S, reason)
        self._peers[url].trouble = reason
        self._peers[url].rests_until = self._clock.monotonic() + REST_S

    def distrust(self, url: str) -> None:
        """Never ask it again."""
        _log.warning("peer %s gave wrong bytes: it is asked no more", url)
        self._peers[url].trouble = "gave wrong bytes"
        self._peers[url].is_distrusted = True

    def troubles(self) -> dict[str, str]:
        """Those that are not asked at the moment, and why; ourselves left out."""
        away = (peer for peer in self._peers.values() if not self._is_there(peer))
        return {peer.url: peer.trouble for peer in away if peer.peer_id != self._own_id}

    def url_of(self, address: str) -> str | None:
        """The peer to which the address of a file belongs."""
        return next((url for url in self._peers if f"{address}/".startswith(f"{url}/")), None)

    def is_own(self, url: str) -> bool:
        """Whether this address is our own."""
        return self._peers[url].peer_id == self._own_id

    def ahead(self, sha256: str) -> tuple[str, ...]:
        """The peers whose turn with a file is before this host's, first ones first."""
        now = self._clock.monotonic()
        known = {
            peer.peer_id: peer.url
            for peer in self._peers.values()
            if peer.peer_id is not None
            and self._is_there(peer)
            and (peer.quiet_since is None or now - peer.quiet_since < QUIET_S)
        }
        order = turns(sha256, (self._own_id, *known))
        return tuple(known[name] for name in order[: order.index(self._own_id)])

    def _is_there(self, peer: _Peer) -> bool:
        is_resting = self._clock.monotonic() < peer.rests_until
        return not (peer.is_distrusted or is_resting or peer.peer_id == self._own_id)
