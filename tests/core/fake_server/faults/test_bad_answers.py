"""Answers that go wrong, of one prompt and of the whole server."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

Connect = Callable[..., Any]

GRAPH = {
    "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 7}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "x"}},
    "3": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
}


def _post(prompt_id: str) -> str:
    body = json.dumps({"prompt": GRAPH, "prompt_id": prompt_id, "client_id": "me"})
    return f"POST /prompt HTTP/1.1\r\nHost: fake\r\nContent-Length: {len(body)}\r\n\r\n{body}"


async def test_close_accepts_nothing_and_closes(connect: Connect) -> None:
    fake, client = await connect(script="close")

    data, error = await client.raw(_post(str(uuid.uuid4())))

    assert (data, error, fake.log) == (b"", None, [])
    assert (await client.submit())[0] == 200


async def test_accept_close_runs_the_prompt_and_closes_before_the_answer(connect: Connect) -> None:
    fake, client = await connect(script="accept-close")
    prompt_id = str(uuid.uuid4())

    data, error = await client.raw(_post(prompt_id))

    assert (data, error) == (b"", None)
    assert (await client.end(prompt_id))["status"]["completed"]
    assert [each["prompt_id"] for each in fake.log] == [prompt_id]


async def test_no_answer_runs_the_prompt_and_never_answers(connect: Connect) -> None:
    _, client = await connect(script="no-answer")
    prompt_id = str(uuid.uuid4())

    asked = asyncio.create_task(client.submit(prompt_id))
    await client.end(prompt_id)

    assert not asked.done()
    asked.cancel()


async def test_garbage_is_200_and_no_json(connect: Connect) -> None:
    fake, client = await connect(script="garbage")

    async with client.http.post("/prompt", json={"prompt": GRAPH}) as answer:
        assert answer.status == 200
        with pytest.raises(json.JSONDecodeError):
            json.loads(await answer.text())
    assert len(fake.log) == 1


@pytest.mark.parametrize(("word", "is_reset"), [("truncated", False), ("rst-body", True)])
async def test_half_an_answer_comes_then_the_end(connect: Connect, word: str, is_reset: bool) -> None:
    fake, client = await connect(script=word)
    prompt_id = str(uuid.uuid4())

    data, error = await client.raw(_post(prompt_id))

    head, _, body = data.partition(b"\r\n\r\n")
    stated = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    assert head.startswith(b"HTTP/1.1 200")
    assert 0 < len(body) < stated
    assert isinstance(error, ConnectionResetError) is is_reset
    await client.end(prompt_id)
    assert len(fake.log) == 1


@pytest.mark.parametrize("status", [503, 429])
async def test_busy_says_when_to_come_again(connect: Connect, status: int) -> None:
    fake, client = await connect(script=f"{status}:7,{status}")

    for seconds in ("7", "1"):
        async with client.http.post("/prompt", json={"prompt": GRAPH}) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (status, seconds)
    assert fake.log == []
    assert (await client.submit())[0] == 200


async def test_node_errors_come_with_an_accepted_prompt_that_lacks_an_output(connect: Connect) -> None:
    _, client = await connect(script="node-errors")
    prompt_id = str(uuid.uuid4())

    status, _, body = await client.submit(prompt_id, prompt=GRAPH)

    assert (status, body["prompt_id"]) == (200, prompt_id)
    (left_out,) = body["node_errors"]
    entry = await client.end(prompt_id)
    assert entry["status"]["completed"]
    assert set(entry["outputs"]) == {"2", "3"} - {left_out}


async def test_other_id_runs_under_an_id_of_the_servers_own(connect: Connect) -> None:
    _, client = await connect(script="other-id")

    _, asked, body = await client.submit()

    assert body["prompt_id"] != asked
    await client.end(body["prompt_id"])
    assert await client.get(f"/history/{asked}") == {}


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_all_requests_fail_until_the_time_is_over(connect: Connect, status: int) -> None:
    _, client = await connect()

    await client.tell({"now": [f"{status}:0.3"]})

    assert [await client.status(path) for path in ("/queue", "/system_stats", "/ws")] == [status] * 3
    assert await client.get("/fake/script") == {"now": [f"{status}:0.3"], "boots": 1}
    until = time.monotonic() + 20
    while await client.status("/queue") != 200:
        assert time.monotonic() < until
    assert (await client.get("/fake/script"))["now"] == []


async def test_a_frozen_server_carries_out_what_it_answers_when_it_thaws(connect: Connect) -> None:
    fake, client = await connect()
    await client.tell({"now": "no-answer"})

    asked = asyncio.create_task(client.submit())
    await client.until(lambda: bool(fake.log) and fake.log[0]["end"] == "success")
    done, _ = await asyncio.wait({asked}, timeout=0.2)
    assert not done

    await client.tell({"now": "ok"})
    assert (await asked)[0] == 200


@pytest.mark.parametrize(
    ("word", "path"),
    [("history-500", "/history"), ("jobs-500", "/api/jobs"), ("queue-500", "/queue")],
)
async def test_one_route_fails_for_a_while(connect: Connect, word: str, path: str) -> None:
    _, client = await connect()
    await client.tell({"now": [word]})

    assert await client.status(path) == 500
    assert await client.status("/system_stats") == 200

    await client.tell({"now": ["ok"]})
    assert await client.status(path) == 200


async def test_a_script_begins_what_is_about_the_server_with_the_prompt(connect: Connect) -> None:
    _, client = await connect(script="history-500:0.2")

    assert await client.status("/history") == 200
    _, prompt_id, _ = await client.submit()
    assert await client.status(f"/history/{prompt_id}") == 500
    until = time.monotonic() + 20
    while await client.status("/history") == 500:
        assert time.monotonic() < until
    await client.end(prompt_id)


async def test_the_schema_takes_as_long_as_it_is_told(connect: Connect) -> None:
    _, client = await connect(script={"now": ["slow-object-info:0.3"]})
    began = time.monotonic()

    assert await client.status("/object_info/SaveImage") == 200
    assert time.monotonic() - began >= 0.3
    assert await client.status("/queue") == 200


async def test_every_answer_may_be_cut(connect: Connect) -> None:
    _, client = await connect()
    await client.tell({"now": ["rst-body"]})

    with pytest.raises(aiohttp.ClientError):
        await client.get("/system_stats")

    await client.tell({"now": ["ok"]})
    assert await client.status("/system_stats") == 200


async def test_a_prompt_runs_although_its_client_left_without_the_answer(connect: Connect) -> None:
    fake, client = await connect()
    prompt_id = str(uuid.uuid4())

    await client.send_and_leave(_post(prompt_id))

    assert (await client.end(prompt_id))["status"]["completed"]
    assert len(fake.log) == 1
