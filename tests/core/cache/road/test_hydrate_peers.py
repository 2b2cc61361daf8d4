"""Hosts that hydrate from each other, and what becomes of peers that lie or die."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from comfyfarm.cache.blobs import BlobStore, blob_key
from comfyfarm.cache.hydrate import hydrate
from comfyfarm.cache.keeper.keeper import Bounds, Keeper
from comfyfarm.cache.peers.server import open_server, serving
from comfyfarm.cache.supply import Supply

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Act, Ask, Depot, ModelFile

TOKEN = "shared-5ecret"
Host = tuple[Keeper, str]

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[[], Host]]:
    """A host: its cache, and where it is served."""
    with ExitStack() as stack:
        names = iter(range(100))

        def make() -> Host:
            blobs = BlobStore(tmp_path / f"host-{next(names)}")
            server = open_server(blobs, host="127.0.0.1", port=0, token=TOKEN)
            return Keeper(blobs, Bounds(None, 0)), stack.enter_context(serving(server))

        yield make


def supply_of(*urls: str, mirror: str | None = None) -> Supply:
    return Supply(mirror=mirror, peers=urls, peer_token=SecretStr(TOKEN))


def test_a_plan_that_three_hosts_get_at_once_asks_the_mirror_about_once_for_each_file(
    make_host: Callable[[], Host],
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
) -> None:
    hosts = [make_host() for _ in range(3)]
    files = [make_file(seed, 600_000) for seed in range(60, 65)]
    depot = make_depot(*files)
    depot.act = lambda ask: act(rate=1.5e6)
    supply = supply_of(*(url for _, url in hosts), mirror=depot.url)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda host: asyncio.run(hydrate(files, supply=supply, keeper=host[0])), hosts))

    for keeper, _ in hosts:
        assert all(keeper.blobs.path(file.sha256).read_bytes() == file.data for file in files)
    times = [depot.sent[file.sha256] / file.size for file in files]
    assert min(times) >= 1
    # Without peers it were three times each. A host may lose a turn when the machine is busy.
    assert sum(times) <= 1.6 * len(files), times


async def test_a_host_that_has_all_serves_a_new_one_without_the_mirror(
    make_host: Callable[[], Host], make_depot: Callable[..., "Depot"], make_file: Callable[..., "ModelFile"]
) -> None:
    (old, old_url), (new, new_url) = make_host(), make_host()
    files = [make_file(seed) for seed in range(70, 74)]
    depot = make_depot(*files)
    supply = supply_of(old_url, new_url, mirror=depot.url)
    await hydrate(files, supply=supply_of(mirror=depot.url), keeper=old)
    given = depot.sent_bytes()

    await hydrate(files, supply=supply, keeper=new)

    assert depot.sent_bytes() == given
    assert all(new.blobs.path(file.sha256).read_bytes() == file.data for file in files)


async def test_a_peer_that_lies_is_asked_no_more_and_its_files_come_from_the_mirror(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    keeper: Keeper,
    watcher: object,
) -> None:
    files = [make_file(seed) for seed in range(80, 86)]
    liar, mirror = make_depot(*files), make_depot(*files)
    liar.act = lambda ask: act(flips=ask.start)

    await hydrate(files, supply=supply_of(liar.url, mirror=mirror.url), keeper=keeper)

    assert all(keeper.blobs.path(file.sha256).read_bytes() == file.data for file in files)
    assert dict(mirror.sent) == {file.sha256: file.size for file in files}
    # The fifth begins when one of the first four is here: then it is known who lies.
    believed = {ask.path for ask in liar.asks}
    assert believed.isdisjoint(f"/{blob_key(file.sha256)}" for file in files[4:])


async def test_a_peer_that_dies_in_mid_transfer_leaves_what_came_and_the_mirror_gives_the_rest(
    make_depot: Callable[..., "Depot"], file: "ModelFile", act: type["Act"], keeper: Keeper, watcher: object
) -> None:
    peer, mirror = make_depot(file), make_depot(file)
    others_wait = 2

    def dying(ask: "Ask") -> "Act":
        return act() if ask.nth <= others_wait else act(sends=0, ending="reset")

    peer.act = dying
    await hydrate([file], supply=supply_of(peer.url, mirror=mirror.url), keeper=keeper)

    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
    assert peer.sent_bytes() > 0
    assert peer.sent_bytes() + mirror.sent_bytes() <= file.size + peer.sent_bytes() // 2
