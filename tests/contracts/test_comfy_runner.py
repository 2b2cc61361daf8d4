"""Our own client, session and attempt on the server, from the submission to a classified end."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.wire import Phase
from comfyfarm.ids import JobId
from comfyfarm.run.attempt import Attempt, Task
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import SUCCEEDED, Reason, Verdict

Attempting = Callable[..., Coroutine[Any, Any, Executed]]


class Steps:
    """A journal that remembers what was committed."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def submitting(self) -> None:
        self.taken.append("submitting")

    async def submitted(self, number: float) -> None:
        self.taken.append(f"submitted {number:g}")


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def attempting(comfy: Any, steps: Steps) -> Attempting:
    """Make one attempt, with a session of its own."""

    async def attempt(graph: dict[str, Any], job_id: str, **more: Any) -> Executed:
        deadlines = more.pop("deadlines", Deadlines(submit_s=10, cancel_s=20))
        task = Task(job_id=JobId(job_id), graph=graph, expected=more.pop("expected", ("2",)), **more)
        async with Session(comfy.url) as session:
            return await Attempt(session, task, steps, deadlines=deadlines, clock=SystemClock()).execute()

    return attempt


async def test_an_attempt_succeeds_and_has_its_outputs(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting, steps: Steps
) -> None:
    job_id = new_id()
    executed = await attempting(graphs.picture(f"{job_id}/a"), job_id)
    entry = await comfy.history(job_id)

    assert executed.outcome == SUCCEEDED
    assert executed.entry is not None
    assert [(one.subfolder, one.filename) for one in executed.entry.files()] == [(job_id, "a_00001_.png")]
    assert executed.entry.seconds is not None
    assert steps.taken == ["submitting", f"submitted {entry['prompt'][0]}"]
    assert (executed.stuck, executed.may_run) == (False, False)


async def test_a_second_attempt_of_a_cached_graph_succeeds_too(
    graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    graph = graphs.picture()
    first = await attempting(graph, new_id())
    second = await attempting(graph, new_id())

    assert second.outcome == SUCCEEDED
    assert first.entry is not None
    assert second.entry is not None
    assert second.entry.files() == first.entry.files()


async def test_what_an_earlier_attempt_left_done_is_not_rendered_again(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting, steps: Steps
) -> None:
    job_id, graph = new_id(), graphs.picture()
    answer = await comfy.submit(graph, prompt_id=job_id)
    await comfy.ended(job_id)
    executed = await attempting(graph, job_id, may_be_there=True)

    assert executed.outcome == SUCCEEDED
    assert executed.entry is not None
    assert executed.entry.number == answer["number"]
    assert steps.taken == [f"submitted {answer['number']}"]


async def test_what_an_earlier_attempt_left_running_is_followed(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting, steps: Steps
) -> None:
    job_id, graph = new_id(), graphs.slow(6)
    await comfy.submit_slow(graph, seconds=0.5, prompt_id=job_id)
    await comfy.until_phase(job_id, "in_progress", "completed")
    executed = await attempting(graph, job_id, may_be_there=True, expected=("end",))

    assert executed.outcome == SUCCEEDED
    assert "submitting" not in steps.taken


async def test_a_refused_graph_is_permanent_and_was_not_queued(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting, steps: Steps
) -> None:
    graph, job_id = graphs.picture(), new_id()
    graph["1"]["inputs"]["width"] = 0
    executed = await attempting(graph, job_id)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
    assert executed.outcome.message == "node 1 EmptyImage: Value 0 smaller than min of 1: width"
    assert '"value_smaller_than_min"' in executed.outcome.evidence
    assert "log of the server" in executed.outcome.evidence
    assert steps.taken == ["submitting"]
    assert await comfy.phase(job_id) == "unknown"


async def test_what_is_accepted_in_part_is_cancelled(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    await comfy.submit_slow(graphs.slow())  # so that it waits, and is taken off the queue
    graph, job_id = graphs.picture(), new_id()
    graph["3"] = {"class_type": "PreviewImage", "inputs": {"images": ["4", 0]}}
    graph["4"] = graph["1"] | {"inputs": graph["1"]["inputs"] | {"width": 0}}
    executed = await attempting(graph, job_id)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
    assert executed.outcome.message.startswith("accepted only in part: node 4 EmptyImage: Value 0 smaller")
    assert not executed.stuck
    assert await comfy.phase(job_id) == "unknown"
    assert job_id not in (await comfy.queue())[1]


async def test_a_node_that_raises_is_permanent_and_the_log_is_evidence(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    name = f"{uuid.uuid4()}.png"
    await comfy.http.post("/upload/image", files={"image": (name, b"no picture")})
    executed = await attempting(graphs.loaded(name), new_id())

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.NODE_FAILED)
    assert executed.outcome.message.startswith("node 1 LoadImage: PIL.UnidentifiedImageError: ")
    log = executed.outcome.evidence.partition("log of the server:")[2]
    assert "Exception during processing" in log
    assert name in log


async def test_an_interrupt_by_somebody_else_is_transient(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    job_id = new_id()
    await comfy.submit_slow(graphs.slow(), prompt_id=job_id)
    await comfy.until_phase(job_id, "in_progress")
    following = asyncio.create_task(attempting(graphs.slow(1), job_id, may_be_there=True, expected=("end",)))
    await comfy.post("/interrupt", {})
    executed = await following

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.INTERRUPTED)


async def test_what_is_overdue_is_ended_on_the_server(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    job_id, graph = new_id(), graphs.slow()
    await comfy.submit_slow(graph, prompt_id=job_id)
    limits = Deadlines(execution_s=0.5, cancel_s=30)
    executed = await attempting(graph, job_id, may_be_there=True, deadlines=limits, expected=("end",))

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.DEADLINE)
    assert not executed.stuck
    assert await comfy.phase(job_id) == "cancelled"


async def test_one_that_waits_too_long_is_taken_off_the_queue(
    comfy: Any, graphs: Any, new_id: Any, attempting: Attempting
) -> None:
    running, job_id = await comfy.submit_slow(graphs.slow()), new_id()
    limits = Deadlines(queue_wait_s=0.5, cancel_s=10)
    executed = await attempting(graphs.picture(), job_id, deadlines=limits)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.DEADLINE)
    assert await comfy.queue() == ([running], [])


async def test_a_session_hears_its_own_prompts(comfy: Any, graphs: Any, new_id: Any) -> None:
    job_id = JobId(new_id())
    async with Session(comfy.url) as session:
        assert await session.listening(timeout_s=10)
        with session.follow(job_id) as inbox:
            answer = await session.client.submit(
                graphs.picture(), prompt_id=job_id, client_id=session.client_id
            )
            while not inbox.has_ended:
                await inbox.wait(1)
            entry = await session.client.history(job_id)

    assert answer.is_accepted
    assert entry is not None
    assert (entry.succeeded, entry.number) == (True, answer.number)
    assert '"execution_success"' in inbox.latest[-2]


async def test_a_session_that_reconnects_goes_on_hearing(comfy: Any, graphs: Any, new_id: Any) -> None:
    job_id = JobId(new_id())
    async with Session(comfy.url) as session:
        assert await session.listening(timeout_s=10)
        with session.follow(job_id) as inbox:
            await comfy.submit_slow(graphs.slow(), prompt_id=job_id, client_id=session.client_id)
            while not inbox.has_started:
                await inbox.wait(1)
            await session.reconnect()
            heard = list(inbox.latest)
            while list(inbox.latest) == heard:
                await inbox.wait(0.1)
            await session.client.cancel(job_id)
            while not inbox.has_ended:
                await inbox.wait(1)

    assert '"execution_interrupted"' in inbox.latest[-2]


async def test_the_client_finds_each_phase_in_queue_and_history_too(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    running = JobId(await comfy.submit_slow(graphs.slow()))
    await comfy.until_phase(running, "in_progress")
    waiting = JobId((await comfy.submit(graphs.picture()))["prompt_id"])
    async with ComfyClient(comfy.url) as client:
        queue = await client.queue()
        states = [await client.prompt_state(each) for each in (running, waiting)]
        await client.cancel(running)
        await comfy.ended(waiting)
        ends = [await client.prompt_state(each) for each in (running, waiting)]
        entries = [await client.history(each) for each in (running, waiting)]

    assert [state.phase for state in states] == [Phase.IN_PROGRESS, Phase.PENDING]
    assert [state.phase for state in ends] == [Phase.CANCELLED, Phase.COMPLETED]
    assert queue == {
        Phase.IN_PROGRESS: ((states[0].number, running),),
        Phase.PENDING: ((states[1].number, waiting),),
    }
    assert [entry.number for entry in entries if entry] == [state.number for state in ends]
    assert [entry.succeeded for entry in entries if entry] == [False, True]
