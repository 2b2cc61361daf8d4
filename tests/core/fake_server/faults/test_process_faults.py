"""A process that ends, one that comes back knowing nothing, and a worker that hangs or is dead."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

Connect = Callable[..., Any]


@pytest.mark.parametrize(
    ("word", "accepted"),
    [("exit-before", False), ("exit-accepted", True)],
)
async def test_a_process_ends_around_the_acceptance(connect: Connect, word: str, accepted: bool) -> None:
    fake, client = await connect(script=word)

    with pytest.raises(aiohttp.ClientError):
        await client.submit()

    await client.gone()
    async for _ in client.ws:
        pass
    assert client.ws.close_code == 1006
    assert [each["end"] for each in fake.log] == ([None] if accepted else [])


@pytest.mark.parametrize(
    ("word", "last"), [("exit-node", "executing"), ("exit-success", "execution_success")]
)
async def test_a_process_ends_while_a_prompt_runs(connect: Connect, word: str, last: str) -> None:
    fake, client = await connect(script=word)

    status, _, _ = await client.submit()
    kinds = [message.json()["type"] async for message in client.ws if message.type is aiohttp.WSMsgType.TEXT]

    assert status == 200
    assert kinds[-1] == last
    await client.gone()
    assert [each["end"] for each in fake.log] == [None]
    assert fake.log[0]["started"] is not None


async def test_exit_now_is_answered_first(connect: Connect) -> None:
    _, client = await connect()

    await client.tell({"now": ["exit"]})

    await client.gone()


async def test_a_restart_forgets_queue_history_and_numbers(connect: Connect) -> None:
    fake, client = await connect(script="ok,hang,ok")
    _, first, _ = await client.submit()
    entry = await client.picture(first)
    _, second, _ = await client.submit()
    _, third, _ = await client.submit()
    await client.until(lambda: fake.log[1]["started"] is not None)

    async with client.http.post("/fake/restart") as answer:
        assert await answer.json() == {"boots": 2}

    async for _ in client.ws:
        pass
    assert client.ws.close_code == 1006
    assert await client.get("/queue") == {"queue_running": [], "queue_pending": []}
    assert await client.get("/history") == {}
    assert [await client.status(f"/api/jobs/{each}") for each in (first, second, third)] == [404] * 3
    assert (await client.view(entry))[0] == 200
    await client.reconnect()
    _, _, body = await client.submit(second)
    assert body["number"] == 0
    assert (await client.end(second))["status"]["completed"]
    assert "execution_success" in [kind for kind, _ in await client.messages(second)]
    assert [each["end"] for each in fake.log] == ["success", None, None, "success"]


async def test_a_restart_takes_its_time(connect: Connect) -> None:
    _, client = await connect()

    restart = asyncio.create_task(client.tell({"now": ["restart:0.5"]}))
    await client.gone()

    await restart
    assert await client.get("/history") == {}


async def test_a_prompt_restarts_its_server(connect: Connect) -> None:
    fake, client = await connect(script="restart")
    _, prompt_id, _ = await client.submit()
    async for _ in client.ws:
        pass

    await client.back()
    assert await client.get(f"/history/{prompt_id}") == {}
    assert fake.log[0]["end"] is None
    await client.reconnect()
    _, again, _ = await client.submit(prompt_id)
    assert (await client.end(again))["status"]["completed"]


async def test_a_dead_worker_leaves_everything_pending(connect: Connect) -> None:
    fake, client = await connect(script="worker-dead")

    _, first, _ = await client.submit()
    _, second, _ = await client.submit()
    await client.next_of("status")
    queue = await client.get("/queue")

    assert queue["queue_running"] == []
    assert [each[1] for each in queue["queue_pending"]] == [first, second]
    assert await client.status("/system_stats") == 200
    async with client.http.post(f"/api/jobs/{second}/cancel") as answer:
        assert await answer.json() == {"cancelled": True}
    assert [each["started"] for each in fake.log] == [None, None]
    await client.http.post("/fake/restart")
    await client.reconnect()
    _, third, _ = await client.submit()
    await client.end(third)


async def test_a_worker_that_dies_in_a_run_leaves_its_prompt_running(connect: Connect) -> None:
    _, client = await connect(script="hang")
    _, first, _ = await client.submit()
    await client.next_of("executing")

    await client.tell({"now": ["worker-dead"]})
    _, second, _ = await client.submit()
    async with client.http.post("/interrupt", json={}) as answer:
        assert answer.status == 200
    queue = await client.get("/queue")

    assert [each[1] for each in queue["queue_running"]] == [first]
    assert [each[1] for each in queue["queue_pending"]] == [second]


async def test_a_stuck_worker_runs_one_id_for_ever_without_a_word(connect: Connect) -> None:
    _, client = await connect(script="worker-stuck")
    _, prompt_id, _ = await client.submit()
    while (await client.next_of("executing"))["node"] != "2":
        pass

    async with client.http.post(f"/api/jobs/{prompt_id}/cancel") as answer:
        assert await answer.json() == {"cancelled": True}

    assert await client.silence()
    assert (await client.get(f"/api/jobs/{prompt_id}"))["status"] == "in_progress"


async def test_a_deaf_prompt_ends_well_although_it_was_interrupted(connect: Connect) -> None:
    _, client = await connect(script="deaf", prompt_seconds=0.3)
    _, prompt_id, _ = await client.submit()
    await client.next_of("executing")

    async with client.http.post("/interrupt", json={"prompt_id": prompt_id}) as answer:
        assert answer.status == 200

    assert (await client.end(prompt_id))["status"]["completed"]


async def test_history_is_forgotten_while_the_server_goes_on(connect: Connect) -> None:
    _, client = await connect()
    prompt_id = str(uuid.uuid4())
    await client.submit(prompt_id)
    await client.end(prompt_id)

    await client.tell({"now": ["forget-history"]})

    assert await client.get("/history") == {}
