"""Each scripted behaviour, seen from outside over real sockets."""

import time
import uuid
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

Connect = Callable[..., Any]


async def test_500_queues_nothing(connect: Connect) -> None:
    fake, client = await connect(script="500")

    status, prompt_id, _ = await client.submit()

    assert status == 500
    assert await client.get("/queue") == {"queue_running": [], "queue_pending": []}
    assert fake.log == []
    assert (await client.submit(prompt_id))[0] == 200


async def test_invalid_is_refused_as_a_graph_at_fault_is(connect: Connect) -> None:
    _, client = await connect(script="invalid")

    status, _, body = await client.submit()

    assert (status, body["error"]["type"]) == (400, "prompt_outputs_failed_validation")
    assert body["node_errors"]["2"]["class_type"] == "SaveImage"


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("error", "RuntimeError", "scripted error of the fake server\n"),
        ("oom", "torch.OutOfMemoryError", "TIPS: If the workflow worked before"),
    ],
)
async def test_a_node_raises(connect: Connect, word: str, kind: str, text: str) -> None:
    fake, client = await connect(script=f"ok,{word}")
    await client.end((await client.submit())[1])

    _, prompt_id, _ = await client.submit()
    entry = await client.end(prompt_id)

    name, data = entry["status"]["messages"][-1]
    assert (name, data["exception_type"], data["node_type"]) == ("execution_error", kind, "SaveImage")
    assert text in data["exception_message"]
    assert entry["outputs"] == {}
    assert (await client.next_of("execution_error"))["prompt_id"] == prompt_id
    assert [each["end"] for each in fake.log] == ["success", "error"]


async def test_drop_resets_the_socket_and_the_prompt_goes_on(connect: Connect) -> None:
    fake, client = await connect(script="drop", prompt_seconds=0.1)

    _, prompt_id, _ = await client.submit()
    entry = await client.end(prompt_id)

    kinds = [message.type async for message in client.ws]
    assert client.ws.close_code == 1006
    assert aiohttp.WSMsgType.CLOSE not in kinds
    assert entry["status"]["status_str"] == "success"
    assert fake.log[0]["client_id"] == "me"


async def test_hang_runs_until_it_is_interrupted(connect: Connect) -> None:
    fake, client = await connect(script="hang")
    _, prompt_id, _ = await client.submit()
    while (await client.next_of("executing"))["node"] != "2":
        pass

    assert (await client.get(f"/api/jobs/{prompt_id}"))["status"] == "in_progress"
    async with client.http.post("/interrupt", json={"prompt_id": prompt_id}) as answer:
        assert answer.status == 200
    entry = await client.end(prompt_id)

    assert entry["status"]["messages"][-1][0] == "execution_interrupted"
    assert fake.log[0]["end"] == "interrupted"


async def test_slow_takes_ten_times_as_long_and_two_seconds_at_least(connect: Connect) -> None:
    fake, client = await connect(script="slow", prompt_seconds=0.01)
    began = time.monotonic()

    _, prompt_id, _ = await client.submit()
    await client.end(prompt_id)

    assert time.monotonic() - began >= 2.0
    assert fake.log[0]["ended"] - fake.log[0]["started"] >= 2.0


async def test_prompt_seconds_can_be_cut_short(connect: Connect) -> None:
    _, client = await connect(prompt_seconds=30.0)
    _, prompt_id, _ = await client.submit()
    await client.next_of("executing")

    async with client.http.post(f"/api/jobs/{prompt_id}/cancel") as answer:
        assert await answer.json() == {"cancelled": True}
    entry = await client.end(prompt_id)

    assert entry["status"]["messages"][-1][0] == "execution_interrupted"


async def test_other_peoples_prompts_run_first(connect: Connect) -> None:
    fake, client = await connect(busy=2, prompt_seconds=0.2)

    _, prompt_id, answer = await client.submit()
    queue = await client.get("/queue")

    assert answer["number"] == 2
    assert len(queue["queue_running"]) + len(queue["queue_pending"]) == 3
    await client.end(prompt_id)
    assert [each["prompt_id"] for each in fake.log] == [prompt_id]
    assert list(await client.get("/history"))[-1] == prompt_id
    assert len(await client.get("/history")) == 3


async def test_a_script_can_be_set_at_run_time(connect: Connect) -> None:
    _, client = await connect()
    prompt_id = str(uuid.uuid4())

    async with client.http.post("/fake/script", json={prompt_id: ["500", "oom"]}) as answer:
        assert answer.status == 200
    async with client.http.post("/fake/script", data="nonsense") as answer:
        assert answer.status == 400

    assert (await client.submit())[0] == 200
    assert (await client.submit(prompt_id))[0] == 500
    assert (await client.submit(prompt_id))[0] == 200
    entry = await client.end(prompt_id)
    assert entry["status"]["status_str"] == "error"


async def test_success_is_told_before_the_history_knows(connect: Connect) -> None:
    _, client = await connect(history_lag_s=0.3)
    _, prompt_id, _ = await client.submit()

    await client.next_of("execution_success")
    early = await client.get(f"/history/{prompt_id}")
    while (await client.next_of("executing"))["node"] is not None:
        pass
    late = await client.get(f"/history/{prompt_id}")

    assert (early, list(late)) == ({}, [prompt_id])


async def test_the_log_is_served_as_json(connect: Connect) -> None:
    fake, client = await connect()
    _, prompt_id, _ = await client.submit()
    await client.end(prompt_id)

    assert await client.get("/fake/log") == fake.log
    assert fake.log[0]["end"] == "success"
