"""Where a host looks for a model file, tier by tier: this machine, its peers, the mirror, signed, the web."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import SecretStr

from comfyfarm.addresses import expanded, local_path, mask
from comfyfarm.cache.mirrors.entry import mirror_source, read_entry
from comfyfarm.cache.pinned import Pinned
from comfyfarm.cache.places.objects import open_place
from comfyfarm.cache.places.place import ObjectPlace, S3Access
from comfyfarm.cache.places.remote import RemotePlace
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.errors import FarmError, StoreError, UsageError

if TYPE_CHECKING:
    from comfyfarm.cache.mirrors.signed import SignedList
    from comfyfarm.cache.peers.tier import PeerTier

_log = logging.getLogger(__name__)

Source = Path | Addressed
"""A file of this machine, or one that is asked for over HTTP."""

Tier = Literal["disk", "peer", "mirror", "signed", "web"]


class Offer(NamedTuple):
    """One file at one source."""

    tier: Tier
    source: Source

    @property
    def address(self) -> str:
        """Masked: fit for a log or an error."""
        return str(self.source) if isinstance(self.source, Path) else self.source.address


@dataclass(frozen=True, kw_only=True)
class Supply:
    """What the user named. The order of the tiers is not theirs to choose: the cheapest comes first."""

    mirror: str | None = None
    """A folder, `s3://…` or `https://…`."""
    access: S3Access | None = None
    """For an `s3://` mirror alone; else `AWS_*` says."""
    signed: str | None = None
    """Path or address of a signed list, for hosts that hold no credentials."""
    peers: tuple[str, ...] = ()
    """Addresses of other hosts' caches."""
    peer_token: SecretStr | None = None
    connections: int | None = None
    """To one source of a file; None adapts to the link."""


class Suppliers:
    """The tiers, opened. Shared by all files of a run, and safe from any thread."""

    def __init__(self, supply: Supply, *, cache_root: Path) -> None:
        """`cache_root`: of this host's own cache, which is no peer of itself.

        Raises:
            UsageError: the mirror's or signed list's address is of a kind that is not known.
        """
        self.connections = supply.connections
        self._supply = supply
        self._signed = _signed_list(supply.signed) if supply.signed else None
        self._peers = _peer_tier(supply, cache_root) if supply.peers else None
        self._mirror = open_place(supply.mirror, access=supply.access) if supply.mirror else None

    def offers(self, model: Pinned, stop: Callable[[], None]) -> Iterator[Offer]:
        """Every source of a file, best first; looked for only as far as it is needed. May block.

        Args:
            model: the file.
            stop: called while peers are waited for; raises when the transfer is to end.
        """
        named = [Offer(_tier(each), each) for each in map(_opened, dict.fromkeys(model.sources)) if each]
        local = {offer: _is_there(offer) for offer in named if offer.tier == "disk"}
        yield from (offer for offer, is_there in local.items() if is_there)
        if self._peers is not None:
            yield from (Offer("peer", each) for each in self._peers.sources(model, stop))
        if self._supply.mirror:
            address = mirror_source(self._supply.mirror, model.sha256)
            yield Offer("mirror", _source(open_place(address, access=self._supply.access), address))
        if self._signed is not None:
            yield Offer("signed", _listed(self._signed, model))
        yield from (offer for offer in named if offer.tier == "web")
        # Last, only to be named among those that failed.
        yield from (offer for offer, is_there in local.items() if not is_there)

    def part_digests(self, model: Pinned) -> tuple[str, ...]:
        """SHA-256 of each 16 MiB as the mirror knows them; empty when it knows none. Blocks."""
        if self._mirror is None:
            return ()
        try:
            entry = asyncio.run(read_entry(self._mirror, model.sha256))
        except StoreError as exc:
            _log.warning("%s: its parts are not known: %s", model.sha256, exc)
            return ()
        return entry.parts if entry is not None and entry.size == model.size else ()

    def troubles(self) -> Mapping[str, str]:
        """Peers that are not asked at the moment, and why."""
        return self._peers.troubles() if self._peers is not None else {}

    def blame(self, offer: Offer, reason: str, *, is_wrong: bool) -> None:
        """It did not give the file, or gave wrong bytes: a peer is left alone for a while, or for good."""
        if self._peers is None or offer.tier != "peer":
            return
        if is_wrong:
            self._peers.distrust(offer.address)
        else:
            self._peers.rest(offer.address, reason)


# What few calls name is loaded by those that do.


def _signed_list(place: str) -> "SignedList":
    from comfyfarm.cache.mirrors.signed import SignedList

    return SignedList(place)


def _peer_tier(supply: Supply, cache_root: Path) -> "PeerTier":
    from comfyfarm.cache.peers.identity import cache_id
    from comfyfarm.cache.peers.tier import PeerTier

    try:
        own_id = cache_id(cache_root)
    except OSError:
        own_id = ""  # a read-only disk: at worst it asks itself once
    token = supply.peer_token.get_secret_value() if supply.peer_token else None
    return PeerTier(supply.peers, token, own_id)


class _Unread(NamedTuple):
    """A file of a signed list that cannot be read just now: one source that fails, among others."""

    address: str
    error: FarmError

    def request(self) -> Request:
        raise self.error

    def renew(self) -> bool:
        return False


def _listed(signed: "SignedList", model: Pinned) -> Addressed:
    try:
        found = signed.addressed(model.sha256)
    except FarmError as exc:
        return _Unread(signed.address, exc)
    return found or _Unread(signed.address, StoreError("the list does not have it"))


def _is_there(offer: Offer) -> bool:
    try:
        return isinstance(offer.source, Path) and offer.source.exists()
    except OSError:
        return False  # not for us to look at


def _opened(address: str) -> Source | None:
    # The given credentials are for the mirror alone; a lock's own sources are the environment's affair.
    try:
        return _source(open_place(address), address)
    except (UsageError, ValueError) as exc:
        what = exc if isinstance(exc, UsageError) else f"{mask(address)}: is no address"
        _log.warning("source left out: %s", what)
        return None


def _source(place: ObjectPlace, address: str) -> Source:
    if isinstance(place, RemotePlace):
        return place.addressed()
    path = local_path(address)
    assert path is not None  # noqa: S101 - a place is a folder or remote
    return expanded(path).absolute()


def _tier(source: Source) -> Tier:
    return "disk" if isinstance(source, Path) else "web"
