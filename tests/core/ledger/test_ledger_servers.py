"""Living servers, shards that wait, and locks."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import update

from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.records import ServerRecord
from comfyfarm.ledger.schema import db_now, servers

AddJobs = Callable[..., Awaitable[tuple[JobId, ...]]]

ONE = ServerRecord(url="http://127.0.0.1:1", host="h", device="cuda:0 NVIDIA X", model="x")
TWO = ServerRecord(url="http://127.0.0.1:2", host="h", device="cpu", model="cpu")


async def expire(ledger: Ledger, owner: str) -> None:
    statement = update(servers).where(servers.c.owner == owner).values(lease_until=db_now() - 1.0)
    await ledger._write(lambda connection: connection.execute(statement).rowcount)


async def test_a_server_named_by_two_owners_counts_once(ledger: Ledger) -> None:
    await ledger.register_servers([TWO, ONE], "me")
    await ledger.register_servers([ONE], "you")
    await ledger.register_servers([ONE], "me")

    assert await ledger.living_servers() == (ONE, TWO)


async def test_a_server_lives_as_long_as_one_of_its_owners(ledger: Ledger) -> None:
    await ledger.register_servers([ONE, TWO], "me")
    await ledger.register_servers([ONE], "you")

    await expire(ledger, "me")
    assert await ledger.living_servers() == (ONE,)
    assert await ledger.renew_servers("me") == 2
    assert await ledger.living_servers() == (ONE, TWO)
    await ledger.remove_servers("me")
    assert await ledger.living_servers() == (ONE,)
    await ledger.remove_servers("you")
    assert await ledger.living_servers() == ()
    assert await ledger.renew_servers("you") == 0


async def test_one_server_leaves_alone(ledger: Ledger) -> None:
    await ledger.register_servers([ONE, TWO], "me")
    await ledger.register_servers([TWO], "you")

    await ledger.remove_server(ONE.url, "me")
    await ledger.remove_server(TWO.url, "me")
    await ledger.remove_server("http://nowhere", "me")

    assert await ledger.living_servers() == (TWO,)
    assert await ledger.renew_servers("me") == 0
    await ledger.register_servers([ONE], "me")
    assert await ledger.living_servers() == (ONE, TWO)


async def test_servers_whose_rows_were_swept_away_are_registered_again(ledger: Ledger) -> None:
    await ledger.register_servers([ONE], "me")
    swept = update(servers).values(lease_until=db_now() - 700.0)
    await ledger._write(lambda connection: connection.execute(swept).rowcount)
    await ledger.register_servers([TWO], "you")

    assert await ledger.renew_servers("me") == 0
    await ledger.register_servers([ONE], "me")

    assert await ledger.living_servers() == (ONE, TWO)


async def test_the_newest_word_about_a_server_counts(ledger: Ledger) -> None:
    changed = ONE.model_copy(update={"model": "y"})
    await ledger.register_servers([ONE], "me")

    await ledger.register_servers([changed], "you", lease_s=90.0)

    assert await ledger.living_servers() == (changed,)


async def test_a_shard_waits_starts_and_ends(ledger: Ledger, add_jobs: AddJobs) -> None:
    await add_jobs(1)
    first = await ledger.announce_shard("b", "h", "me")
    second = await ledger.announce_shard("b", "h", "you")
    await ledger.announce_shard("b", "elsewhere", "you")

    await ledger.start_shard(second)
    waiting, running = await ledger.open_shards("h")

    assert (waiting.id, waiting.owner, waiting.started) == (first, "me", None)
    assert running.started is not None
    assert running.waiting_since <= running.started
    await ledger.end_shard(first)
    assert [shard.id for shard in await ledger.open_shards("h")] == [second]


async def test_a_lock_has_one_holder_at_a_time(ledger: Ledger, ledger_url: str) -> None:
    inside = 0
    most = 0

    async def work() -> None:
        nonlocal inside, most
        async with await open_ledger(ledger_url) as own, own.lock("limits"):
            inside += 1
            most = max(most, inside)
            await ledger.batches()
            inside -= 1

    await asyncio.gather(*(work() for _ in range(4)))

    assert (inside, most) == (0, 1)


async def test_locks_of_other_names_are_others(ledger: Ledger) -> None:
    async with ledger.lock("one"), ledger.lock("two"):
        assert await ledger.batches() == ()


async def test_a_lock_is_free_after_an_error_and_after_a_cancelled_wait(
    ledger: Ledger, ledger_url: str
) -> None:
    async def wait() -> None:
        async with ledger.lock("x"):
            raise AssertionError("not reached: the lock is held")

    async def hold_while_another_gives_up(holder: Ledger) -> None:
        async with holder.lock("x"):
            waiter = asyncio.create_task(wait())
            done, _ = await asyncio.wait([waiter], timeout=0.1)
            assert not done
            waiter.cancel()
            await asyncio.wait([waiter])
            assert waiter.cancelled()
            raise KeyError

    async with await open_ledger(ledger_url) as other:
        with pytest.raises(KeyError):
            await hold_while_another_gives_up(other)

        async with asyncio.timeout(5), other.lock("x"), other.lock("y"):
            pass
