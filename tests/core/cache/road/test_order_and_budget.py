"""Many files: the order in which they begin, and how many requests one server sees at a time."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from comfyfarm.cache.hydrate import FILES_AT_ONCE, hydrate
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.supply import Supply

if TYPE_CHECKING:
    from tests.core.cache.road.conftest import Act, Ask, Depot, ModelFile

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("watcher")


async def test_files_begin_in_their_order_a_few_at_a_time(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    keeper: Keeper,
) -> None:
    files = [make_file(seed, 200_000) for seed in range(20, 32)]
    depot = make_depot(*files)
    depot.act = lambda ask: act(rate=2e6)
    came: list[str] = []

    await hydrate(
        [file.at(f"{depot.url}/{file.sha256}") for file in files],
        supply=Supply(),
        keeper=keeper,
        on_file=lambda model, _: came.append(model.sha256),
    )

    asked = [ask.path.removeprefix("/") for ask in depot.asks]
    assert len(asked) == len(came) == len(files)
    for place, file in enumerate(files):
        assert abs(asked.index(file.sha256) - place) < FILES_AT_ONCE
    assert depot.most_busy == FILES_AT_ONCE


@pytest.mark.parametrize("connections", [None, 32])
async def test_one_server_never_sees_more_than_32_requests_at_a_time(
    connections: int | None,
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    keeper: Keeper,
) -> None:
    files = [make_file(seed, 12 * MIB) for seed in range(40, 46)]
    depot = make_depot(*files)
    depot.act = lambda ask: act(rate=8e6)

    await hydrate(
        [file.at(f"{depot.url}/{file.sha256}") for file in files],
        supply=Supply(connections=connections),
        keeper=keeper,
    )

    assert FILES_AT_ONCE < depot.most_busy <= 32
    assert dict(depot.sent) == {file.sha256: file.size for file in files}
    assert all(keeper.blobs.path(file.sha256).read_bytes() == file.data for file in files)


async def test_a_server_that_is_too_busy_is_asked_by_fewer(
    make_depot: Callable[..., "Depot"],
    make_file: Callable[..., "ModelFile"],
    act: type["Act"],
    keeper: Keeper,
) -> None:
    file = make_file(50, 24 * MIB)
    depot = make_depot(file)
    refused: list[int] = []

    def crowded(ask: "Ask") -> "Act":
        if ask.busy > 2 and len(refused) < 4:
            refused.append(ask.nth)
            return act(status=503, body=b"")
        return act(rate=8e6)

    depot.act = crowded
    await hydrate([file.at(f"{depot.url}/{file.sha256}")], supply=Supply(), keeper=keeper)

    assert 2 <= len(refused) <= 4
    # Each connection brings so little that there would be 16 otherwise.
    assert max(ask.busy for ask in depot.asks[-6:]) <= 8
    assert depot.sent_bytes() == file.size
    assert keeper.blobs.path(file.sha256).read_bytes() == file.data
