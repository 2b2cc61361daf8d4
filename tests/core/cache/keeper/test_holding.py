"""A lease on an event loop: it ends with whoever asked for it, at whatever moment that is cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.cache_lock import cache_lock
from comfyfarm.cache.keeper.holding import held
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.cache.keeper.leases import living
from comfyfarm.clock import SystemClock
from comfyfarm.errors import NoRoom

Keep = Callable[..., Keeper]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await SystemClock().sleep(0.005)


def leases(blobs: BlobStore) -> list[str]:
    return [note.who for note in living(blobs.root)]


async def test_a_lease_is_there_as_long_as_it_is_open(blobs: BlobStore, put: Any, keep: Keep) -> None:
    model = put("a")
    async with held(keep(), [model], who="job 7") as found:
        assert found.missing == ()
        assert leases(blobs) == ["job 7"]
    assert leases(blobs) == []


async def test_an_error_inside_ends_the_lease_and_comes_out(blobs: BlobStore, put: Any, keep: Keep) -> None:
    model = put("a")
    with pytest.raises(ZeroDivisionError):
        async with held(keep(), [model]):
            raise ZeroDivisionError
    assert leases(blobs) == []


async def test_what_does_not_fit_is_refused(blobs: BlobStore, blob: Any, keep: Keep) -> None:
    with pytest.raises(NoRoom):
        async with held(keep(500), [blob("a", size=501)]):
            raise AssertionError
    assert leases(blobs) == []


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancel_while_others_have_the_lock_leaves_no_lease(
    blobs: BlobStore, put: Any, keep: Keep, monkeypatch: pytest.MonkeyPatch, cancels: int
) -> None:
    model, keeper, waits = put("a"), keep(), threading.Event()
    take = keeper._take

    def noted(*given: Any) -> Any:
        waits.set()
        return take(*given)

    monkeypatch.setattr(keeper, "_take", noted)

    async def hold() -> None:
        async with held(keeper, [model]):
            raise AssertionError

    with cache_lock(blobs.root, disk=blobs.disk):
        task = asyncio.create_task(hold())
        await until(waits.is_set)
        for _ in range(cancels):
            task.cancel()
            await SystemClock().sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert leases(blobs) == []
    assert keep().evict([model.sha256]).evicted == (model.sha256,)


async def test_a_cancel_while_the_lease_ends_ends_it_all_the_same(
    blobs: BlobStore, put: Any, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, keeper = put("a"), keep()
    ends, go, note = threading.Event(), threading.Event(), keeper.note

    def slow(**words: Any) -> None:
        if leases(blobs) == []:
            ends.set()
            go.wait(10)
        note(**words)

    monkeypatch.setattr(keeper, "note", slow)
    is_over = False

    async def hold() -> None:
        nonlocal is_over
        async with held(keeper, [model]):
            pass
        is_over = True

    task = asyncio.create_task(hold())
    await until(ends.is_set)
    task.cancel()
    await SystemClock().sleep(0.02)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_over
