"""The queue, and the ways to take a prompt out of it or to end it."""

from typing import Any

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import Phase
from comfyfarm.ids import JobId
from comfyfarm.run.cancel import cancel_prompt


@pytest.fixture
async def running(comfy: Any, graphs: Any) -> str:
    """A prompt that will run for as long as the test does, in its first blurs."""
    prompt_id: str = await comfy.submit_slow(graphs.slow(), client_id="runner")
    await comfy.until_phase(prompt_id, "in_progress")
    return prompt_id


@pytest.fixture
async def waiting(running: str, comfy: Any, graphs: Any) -> str:
    """A prompt behind it."""
    prompt_id: str = (await comfy.submit(graphs.picture(), client_id="waiter"))["prompt_id"]
    return prompt_id


async def test_a_prompt_waits_runs_and_is_done(comfy: Any, graphs: Any, running: str, waiting: str) -> None:
    assert await comfy.queue() == ([running], [waiting])
    assert (await comfy.phase(running), await comfy.phase(waiting)) == ("in_progress", "pending")
    assert (await comfy.history(running), await comfy.history(waiting)) == (None, None)

    await comfy.post("/interrupt", {"prompt_id": running})
    await comfy.ended(waiting)

    assert (await comfy.phase(running), await comfy.phase(waiting)) == ("cancelled", "completed")
    assert await comfy.queue() == ([], [])
    assert await comfy.get("/prompt") == {"exec_info": {"queue_remaining": 0}}


async def test_the_queue_holds_the_prompt_as_the_history_does(comfy: Any, running: str, waiting: str) -> None:
    raw = await comfy.get("/queue")
    number, queued_id, graph, extra, outputs = raw["queue_pending"][0]

    assert set(raw) == {"queue_running", "queue_pending"}
    assert queued_id == waiting
    assert number > raw["queue_running"][0][0]
    assert (set(graph), outputs) == ({"1", "2"}, ["2"])
    assert extra["client_id"] == "waiter"
    assert (await comfy.get(f"/api/jobs/{waiting}"))["priority"] == number
    assert await comfy.get("/prompt") == {"exec_info": {"queue_remaining": 2}}


async def test_what_is_put_in_front_runs_first(comfy: Any, graphs: Any, running: str, waiting: str) -> None:
    async with comfy.listen("front") as ears:
        in_front = await comfy.submit(graphs.picture(), front=True, client_id="front")
        behind = await comfy.submit(graphs.picture(), client_id="front")
        order = (await comfy.queue())[1]
        await comfy.post("/interrupt", {"prompt_id": running})
        await ears.until_over(behind["prompt_id"])

    assert in_front["number"] < 0
    assert order == [in_front["prompt_id"], waiting, behind["prompt_id"]]
    starts = [one["data"]["prompt_id"] for one in ears.heard if one["type"] == "execution_start"]
    assert starts == [in_front["prompt_id"], behind["prompt_id"]]


async def test_an_interrupt_ends_what_runs_and_says_where(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    async with comfy.listen("stop") as ears, comfy.listen("bystander") as bystander:
        await comfy.submit_slow(graphs.slow(), seconds=10.0, prompt_id=prompt_id, client_id="stop")
        await ears.until("executing", prompt_id, node="b1")
        answer = await comfy.post("/interrupt", {"prompt_id": prompt_id})
        told = await ears.until("execution_interrupted", prompt_id)
        await ears.until_over(prompt_id)
        await bystander.rest()
    entry = await comfy.history(prompt_id)

    assert (answer.status_code, answer.content) == (200, b"")
    assert set(told) == {"prompt_id", "node_id", "node_type", "executed", "timestamp"}
    assert told["node_type"] == "ImageBlur"
    assert {"1", "b0"} <= set(told["executed"])
    assert bystander.of(prompt_id) == []
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    assert entry["status"]["messages"][-1] == ["execution_interrupted", told]
    assert entry["outputs"] == {}


@pytest.mark.parametrize("body", [None, {}, {"prompt_id": ""}, {"prompt_id": None}])
async def test_an_interrupt_without_an_id_ends_whatever_runs(body: Any, comfy: Any, running: str) -> None:
    answer = await comfy.post("/interrupt", body)

    assert answer.status_code == 200
    assert await comfy.until_phase(running, "cancelled", "completed") == "cancelled"


async def test_an_interrupt_of_another_id_ends_nothing(
    comfy: Any, running: str, waiting: str, new_id: Any
) -> None:
    async with comfy.listen("runner") as ears:
        for prompt_id in (waiting, new_id()):
            assert (await comfy.post("/interrupt", {"prompt_id": prompt_id})).status_code == 200
        for _ in range(2):  # it would be noticed between two nodes
            await ears.until("executing", running)

    assert await comfy.queue() == ([running], [waiting])


async def test_an_interrupt_of_nothing_is_forgotten(comfy: Any, graphs: Any) -> None:
    await comfy.post("/interrupt", {})

    assert (await comfy.render(graphs.picture()))["status"]["status_str"] == "success"


async def test_the_next_prompt_runs_after_an_interrupt(comfy: Any, running: str, waiting: str) -> None:
    await comfy.post("/interrupt", {"prompt_id": running})

    assert (await comfy.ended(waiting))["status"]["status_str"] == "success"


async def test_a_prompt_that_is_deleted_leaves_no_trace(comfy: Any, running: str, waiting: str) -> None:
    answer = await comfy.post("/queue", {"delete": [waiting, running]})

    assert (answer.status_code, answer.content) == (200, b"")
    assert await comfy.queue() == ([running], [])
    assert await comfy.phase(waiting) == "unknown"
    assert await comfy.history(waiting) is None


async def test_clear_takes_what_waits_and_leaves_what_runs(comfy: Any, running: str, waiting: str) -> None:
    answer = await comfy.post("/queue", {"clear": True})

    assert (answer.status_code, answer.content) == (200, b"")
    assert await comfy.queue() == ([running], [])
    assert await comfy.phase(waiting) == "unknown"


@pytest.mark.parametrize("path", ["/queue", "/history"])
async def test_a_list_clears_nothing_and_is_no_fault(path: str, comfy: Any, running: str) -> None:
    assert (await comfy.post(path, [])).status_code == 200
    assert (await comfy.http.post(path, content=b"{")).status_code == 500
    assert await comfy.phase(running) == "in_progress"


async def test_the_route_for_cancels_ends_both_kinds(
    comfy: Any, running: str, waiting: str, new_id: Any
) -> None:
    answers = [await comfy.post(f"/api/jobs/{each}/cancel") for each in (waiting, running, new_id())]
    # Pull request 14493 brought it: 0.25 has no such route, 0.27 has.
    if comfy.version < (0, 27) and {answer.status_code for answer in answers} == {405}:
        assert await comfy.queue() == ([running], [waiting])
        return

    assert [answer.json() for answer in answers] == [{"cancelled": each} for each in (True, True, False)]
    assert await comfy.phase(waiting) == "unknown"
    assert await comfy.until_phase(running, "cancelled", "completed") == "cancelled"


@pytest.mark.parametrize("which", ["running", "waiting"])
async def test_our_cancel_is_proven(which: str, comfy: Any, running: str, waiting: str) -> None:
    prompt_id = JobId(running if which == "running" else waiting)
    async with ComfyClient(comfy.url) as client:
        assert await cancel_prompt(client, prompt_id, clock=SystemClock(), deadline_s=30)
        phase = (await client.prompt_state(prompt_id)).phase

    assert phase is (Phase.CANCELLED if which == "running" else Phase.UNKNOWN)
    assert prompt_id not in [*(await comfy.queue())[0], *(await comfy.queue())[1]]
    if which == "waiting":
        assert await comfy.phase(running) == "in_progress"


async def test_our_cancel_of_what_is_done_or_unknown_says_so_at_once(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    done = (await comfy.submit(graphs.picture()))["prompt_id"]
    await comfy.ended(done)
    async with ComfyClient(comfy.url) as client:
        for prompt_id in (done, new_id()):
            assert await cancel_prompt(client, JobId(prompt_id), clock=SystemClock(), deadline_s=5)

    assert await comfy.phase(done) == "completed"
