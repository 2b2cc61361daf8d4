"""Many hosts, one plan, one moment: the mirror gives each file about once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from comfyfarm.cache.peers import roster
from comfyfarm.cache.peers import tier as tier_module
from comfyfarm.cache.peers.tier import PeerTier
from comfyfarm.cache.places.request import Addressed, Request
from comfyfarm.cache.transfer.landing import open_landing
from comfyfarm.cache.transfer.pull import pull
from comfyfarm.cache.transfer.source import Flow, SourceFailed


class FromMirror:
    """A file of the mirror."""

    def __init__(self, address: str) -> None:
        self.address = address

    def request(self) -> Request:
        return Request(self.address)

    def renew(self) -> bool:
        return False


def fetch(host: Any, file: Any, tier: PeerTier, *, mirror: Any) -> str:
    """What hydrating does with one file, in few words; the address that gave it."""
    flow = Flow(lambda _: None)
    for source in sources(tier, file, mirror=mirror):
        landing = open_landing(host.blobs.root / ".partial" / file.sha256, file.size, stop=flow.check)
        try:
            pull(source, file.size, landing, flow=flow)
            if landing.digest(flow.check) == file.sha256:
                landing.publish(host.blobs.path(file.sha256), mode=0o444)
                return source.address
            tier.distrust(source.address)
        except SourceFailed as exc:
            tier.rest(source.address, exc.reason)
        finally:
            landing.close(keep=False)
    raise AssertionError("no source gave it")


def sources(tier: PeerTier, file: Any, *, mirror: Any) -> Iterator[Addressed]:
    yield from tier.sources(file, lambda: None)
    yield FromMirror(mirror.address(file))


def hydrate_all(hosts: list[Any], files: list[Any], mirror: Any, *, at_once: int = 2) -> list[str]:
    """All hosts fetch all files, beginning at the same moment; who gave them."""
    urls = [host.url for host in hosts]
    start = threading.Barrier(len(hosts))

    def hydrate(host: Any) -> list[str]:
        tier = host.tier(*urls)
        start.wait()
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda file: fetch(host, file, tier, mirror=mirror), files))

    with ThreadPoolExecutor(len(hosts)) as pool:
        return [address for found in pool.map(hydrate, hosts) for address in found]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patched because a busy machine may take longer to begin than hosts of a farm do."""
    monkeypatch.setattr(tier_module, "GRACE_S", 10.0)
    monkeypatch.setattr(tier_module, "SHORT_STALL_S", 10.0)
    monkeypatch.setattr(roster, "QUIET_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_four_hosts_take_each_file_from_the_mirror_about_once(
    make_host: Callable[..., Any], make_file: Callable[..., Any], mirror: Any
) -> None:
    hosts = [make_host(token="shared") for _ in range(4)]
    files = [make_file(seed, size=1_500_000) for seed in range(5)]

    given_by = hydrate_all(hosts, files, mirror)

    times = [mirror.times(file) for file in files]
    assert all(host.blobs.has(file.sha256, size=file.size) for host in hosts for file in files)
    assert all(1 <= count <= 2 for count in times), times
    assert sum(times) <= 7, times
    assert len({address.split("/sha256/")[0] for address in given_by} - {mirror.url}) >= 2


def test_without_peers_the_mirror_gives_each_file_to_each_host(
    make_host: Callable[..., Any], make_file: Callable[..., Any], mirror: Any
) -> None:
    # What the test above would count if the tier did nothing.
    hosts, file = [make_host() for _ in range(2)], make_file(1)
    for host in hosts:
        fetch(host, file, PeerTier([], None, host.own_id), mirror=mirror)

    assert mirror.times(file) == 2


def test_a_host_whose_peers_lie_gets_the_right_bytes(
    make_host: Callable[..., Any], make_file: Callable[..., Any], mirror: Any
) -> None:
    me, liar, honest, file = make_host(), make_host(), make_host(), make_file(1)
    liar.put(file, data=b"x" * file.size)
    tier = me.tier(liar.url, honest.url)

    assert fetch(me, file, tier, mirror=mirror).startswith(mirror.url)
    assert me.blobs.path(file.sha256).read_bytes() == file.data


@pytest.mark.parametrize("count", [1, 3])
def test_hosts_that_have_all_serve_a_new_one_without_the_mirror(
    make_host: Callable[..., Any], make_file: Callable[..., Any], mirror: Any, count: int
) -> None:
    hosts, me = [make_host() for _ in range(count)], make_host()
    files = [make_file(seed) for seed in range(4)]
    for host in hosts:
        for file in files:
            host.put(file)

    for file in files:
        fetch(me, file, me.tier(*(host.url for host in hosts)), mirror=mirror)

    assert not mirror.given
    assert all(me.blobs.path(file.sha256).read_bytes() == file.data for file in files)
