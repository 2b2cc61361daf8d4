"""One attempt against a fake server: what it saw, what it committed, what it left on the server."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.wire import Phase
from comfyfarm.ids import JobId
from comfyfarm.run.attempt import Attempt, Task
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.executed import Executed
from comfyfarm.run.outcome import SUCCEEDED, Reason, Verdict
from fake_server.comfy import FakeComfy
from fake_server.serve import serve
from infra.comfy_servers import fake_comfy

Serving = Callable[..., Any]
SAMPLER = {
    "model": ["1", 0],
    "positive": ["2", 0],
    "negative": ["2", 0],
    "latent_image": ["3", 0],
    "seed": 1,
    "steps": 20,
    "cfg": 1.0,
    "sampler_name": "euler",
    "scheduler": "normal",
    "denoise": 1.0,
}
SHORT = Deadlines(submit_s=5, cancel_s=5)


async def attempt(
    url: str,
    task: Task,
    journal: Any,
    *,
    deadlines: Deadlines = SHORT,
    clock: Clock | None = None,
) -> Executed:
    clock = clock or SystemClock()
    async with Session(url, clock=clock) as session:
        return await Attempt(session, task, journal, deadlines=deadlines, clock=clock).execute()


@pytest.fixture
def task(job_id: JobId, graph: dict[str, Any]) -> Task:
    return Task(job_id=job_id, graph=graph, expected=("2",))


def on(path: str, what: str, *, times: int = 10**6, method: str = "") -> Callable[[web.Request], str]:
    """What happens to the first requests of a path."""
    left = [times]

    def plan(request: web.Request) -> str:
        if not request.path.startswith(path) or method not in {"", request.method} or left[0] == 0:
            return ""
        left[0] -= 1
        return what

    return plan


async def test_a_good_prompt_succeeds_and_both_steps_are_committed(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving()
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED
    assert executed.entry is not None
    assert [one.subfolder for one in executed.entry.files()] == [task.job_id]
    assert journal.steps == ["submitting", "submitted 0"]
    assert [one["prompt_id"] for one in fake.log] == [task.job_id]


async def test_a_refused_graph_is_permanent(serving: Serving, task: Task, journal: Any) -> None:
    fake, url = serving(script="invalid")
    executed = await attempt(url, task, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
    assert journal.steps == ["submitting"]
    assert fake.log == []


async def test_an_error_500_is_the_servers(serving: Serving, task: Task, journal: Any) -> None:
    fake, url = serving(script="500")
    executed = await attempt(url, task, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.SERVER)
    assert "500" in executed.outcome.message
    assert fake.log == []


async def test_a_node_that_raises_is_permanent_and_named(serving: Serving, task: Task, journal: Any) -> None:
    _, url = serving(script="error")
    executed = await attempt(url, task, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.NODE_FAILED)
    assert executed.outcome.message == "node 2 SaveImage: RuntimeError: scripted error of the fake server"


async def test_out_of_memory_may_pass(serving: Serving, task: Task, journal: Any) -> None:
    _, url = serving(script="oom")
    executed = await attempt(url, task, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.OOM)


async def test_a_dropped_socket_changes_nothing(serving: Serving, task: Task, journal: Any) -> None:
    fake, url = serving(script="drop", prompt_seconds=0.2)
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED
    assert len(fake.log) == 1


async def test_without_any_socket_polling_finds_the_end(
    serving: Serving, task: Task, journal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_waited_for(_session: Session, timeout_s: float) -> bool:
        return False

    # It would wait ten seconds for a socket that this server has not.
    monkeypatch.setattr(Session, "listening", not_waited_for)
    _, url = serving(mishap=on("/ws", "404"), prompt_seconds=0.1)
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED


async def test_a_socket_that_says_nothing_is_only_a_hint_missed(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(prompt_seconds=0.1)
    stranger = Session(url, client_id="somebody-else")
    async with stranger:
        assert await stranger.listening(10)
        stranger.client_id = "not on this socket"
        executed = await Attempt(stranger, task, journal, deadlines=SHORT, clock=SystemClock()).execute()

    assert executed.outcome == SUCCEEDED
    assert fake.log[0]["client_id"] == "not on this socket"


# --- deadlines ----------------------------------------------------------------------------------


async def phase_of(url: str, job_id: JobId) -> Phase:
    async with ComfyClient(url) as client:
        return (await client.prompt_state(job_id)).phase


@pytest.mark.parametrize(
    ("deadlines", "said"),
    [
        (Deadlines(execution_s=0.2, cancel_s=5), "execution: not done after 0.2 s"),
        (Deadlines(no_progress_s=0.2, cancel_s=5), "no progress for 0.2 s"),
    ],
)
async def test_a_prompt_that_hangs_is_cancelled_at_its_deadline(
    serving: Serving, task: Task, journal: Any, deadlines: Deadlines, said: str
) -> None:
    fake, url = serving(script="hang")
    executed = await attempt(url, task, journal, deadlines=deadlines)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.DEADLINE)
    assert executed.outcome.message == said
    assert "execution_start" in executed.outcome.evidence
    assert not executed.stuck
    assert fake.log[0]["end"] == "interrupted"
    assert await phase_of(url, task.job_id) is Phase.CANCELLED


async def test_waiting_too_long_in_the_queue_takes_the_prompt_off_it(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(busy=1, prompt_seconds=30.0)
    executed = await attempt(url, task, journal, deadlines=Deadlines(queue_wait_s=0.2, cancel_s=5))

    assert executed.outcome.reason is Reason.DEADLINE
    assert executed.outcome.message == "queue wait: not begun after 0.2 s"
    assert not executed.stuck
    assert fake.log[0]["started"] is None
    assert await phase_of(url, task.job_id) is Phase.UNKNOWN


async def test_a_server_that_will_not_let_go_is_stuck(serving: Serving, task: Task, journal: Any) -> None:
    def deaf(request: web.Request) -> str:
        return "200" if request.path.endswith("/cancel") else ""

    _, url = serving(script="hang", mishap=deaf)
    executed = await attempt(url, task, journal, deadlines=Deadlines(execution_s=0.2, cancel_s=0.6))

    assert executed.outcome.reason is Reason.DEADLINE
    assert executed.stuck


async def test_progress_keeps_a_slow_prompt_alive(serving: Serving, job_id: JobId, journal: Any) -> None:
    graph = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}},
        "2": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["1", 1], "text": "x"}},
        "3": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "4": {"class_type": "KSampler", "inputs": SAMPLER},
        "5": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["1", 2]}},
        "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": f"{job_id}/p"}},
    }
    fake, url = serving(prompt_seconds=3.0)
    (fake.models_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
    (fake.models_dir / "checkpoints" / "m.safetensors").write_bytes(b"x")
    task = Task(job_id=job_id, graph=graph, expected=("6",))

    executed = await attempt(url, task, journal, deadlines=Deadlines(no_progress_s=2.2, cancel_s=5))

    assert executed.outcome == SUCCEEDED


# --- answers that are lost ----------------------------------------------------------------------


async def test_a_submission_whose_answer_is_lost_is_found_and_not_sent_again(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(mishap=on("/prompt", "lose answer", times=1, method="POST"), prompt_seconds=0.2)
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED
    assert journal.steps == ["submitting", "submitted 0"]
    assert [one["prompt_id"] for one in fake.log] == [task.job_id]


async def test_a_submission_that_never_arrived_is_the_servers_fault(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(mishap=on("/prompt", "lose request", method="POST"))
    executed = await attempt(url, task, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.SERVER)
    assert journal.steps == ["submitting"]
    assert fake.log == []


async def test_a_short_silence_in_mid_prompt_is_waited_out(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(mishap=on("/api/jobs", "lose request", times=2), prompt_seconds=0.3)
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED
    assert len(fake.log) == 1


async def test_a_history_that_cannot_be_read_at_the_end_is_read_later(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(mishap=on("/history", "503", times=4))
    executed = await attempt(url, task, journal)

    assert executed.outcome == SUCCEEDED
    assert len(fake.log) == 1


async def test_a_history_that_stays_away_loses_the_attempt_but_not_the_prompt(
    serving: Serving, task: Task, journal: Any, hasty: Any
) -> None:
    _, url = serving(mishap=on("/history", "503"))
    executed = await attempt(url, task, journal, clock=hasty(20))

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.SERVER)
    assert executed.may_run


async def test_another_id_than_ours_is_refused(serving: Serving, task: Task, journal: Any) -> None:
    fake, url = serving()
    nameless = task.model_copy(update={"job_id": JobId("")})
    executed = await attempt(url, nameless, journal)

    # ComfyUI refuses an id that is none; a server that runs it under its own would be useless to us.
    assert executed.outcome.reason is Reason.INVALID_WORKFLOW
    assert fake.log == []


async def test_accepted_in_part_is_cancelled_and_permanent(
    serving: Serving, task: Task, journal: Any
) -> None:
    fake, url = serving(busy=1, prompt_seconds=1.0)
    bad = {"class_type": "EmptyImage", "inputs": {"width": 0, "height": 8, "batch_size": 1, "color": 0}}
    save = {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "bad"}}
    partly = task.model_copy(update={"graph": {**task.graph, "5": bad, "6": save}})

    executed = await attempt(url, partly, journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
    assert executed.outcome.message.startswith("accepted only in part: node 5 EmptyImage: ")
    assert len(fake.log) == 1
    assert await phase_of(url, task.job_id) is Phase.UNKNOWN
    assert fake.log[0]["end"] != "success"


async def test_an_interrupt_that_is_not_ours_may_pass(
    serving: Serving, task: Task, journal: Any, until: Any
) -> None:
    fake, url = serving(script="hang")
    running = asyncio.create_task(attempt(url, task, journal))
    await until(lambda: bool(fake.log and fake.log[0]["started"]))
    async with ComfyClient(url) as client:
        while not running.done():
            await client.cancel(task.job_id)
            await SystemClock().sleep(0.05)
    executed = await running

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.INTERRUPTED)


async def test_a_prompt_that_somebody_takes_off_the_queue_crashed_nothing(
    serving: Serving, task: Task, journal: Any, until: Any
) -> None:
    fake, url = serving(busy=1, prompt_seconds=20.0)
    running = asyncio.create_task(attempt(url, task, journal))
    await until(lambda: bool(fake.log))
    async with ComfyClient(url) as client:
        await client.cancel(task.job_id)
    executed = await running

    assert executed.outcome.reason is Reason.SERVER
    assert "before it began" in executed.outcome.message


# --- what an earlier process left ---------------------------------------------------------------


async def left(url: str, task: Task) -> float:
    async with ComfyClient(url) as client:
        answer = await client.submit(task.graph, prompt_id=task.job_id, client_id="of the dead one")
    assert answer.number is not None
    return answer.number


@pytest.mark.parametrize("is_number_known", [True, False])
@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.IN_PROGRESS, Phase.PENDING])
async def test_a_prompt_that_was_left_is_followed_and_not_sent_again(
    serving: Serving, task: Task, journal: Any, phase: Phase, *, is_number_known: bool
) -> None:
    options = {Phase.COMPLETED: {}, Phase.IN_PROGRESS: {}, Phase.PENDING: {"busy": 1}}[phase]
    fake, url = serving(prompt_seconds=0.0 if phase is Phase.COMPLETED else 0.6, **options)
    number = await left(url, task)
    while await phase_of(url, task.job_id) is not phase:
        await SystemClock().sleep(0.01)

    executed = await attempt(
        url,
        task.model_copy(update={"may_be_there": True, "number": number if is_number_known else None}),
        journal,
    )

    assert executed.outcome == SUCCEEDED
    assert executed.entry is not None
    assert journal.steps == ([] if is_number_known else [f"submitted {number:g}"])
    assert len(fake.log) == 1


async def test_a_prompt_that_was_left_is_found_where_the_history_keeps_no_status(
    serving: Serving, task: Task, journal: Any, until: Any
) -> None:
    fake, url = serving(script="no-status")
    number = await left(url, task)
    await until(lambda: fake.log[0]["end"] == "success")

    executed = await attempt(url, task.model_copy(update={"may_be_there": True, "number": number}), journal)

    assert executed.outcome == SUCCEEDED
    assert len(fake.log) == 1


async def test_a_prompt_that_is_unknown_there_is_sent(serving: Serving, task: Task, journal: Any) -> None:
    for number in (None, 3.0):
        fake, url = serving()
        executed = await attempt(
            url, task.model_copy(update={"may_be_there": True, "number": number}), journal
        )

        assert executed.outcome == SUCCEEDED
        assert len(fake.log) == 1


@pytest.mark.parametrize("what", ["503", "lose answer"])
async def test_a_server_that_is_troubled_is_asked_again_before_anything_is_sent(
    serving: Serving, task: Task, journal: Any, what: str
) -> None:
    trouble = {"times": 0}
    fake, url = serving(mishap=lambda request: what if _is_troubled(request, trouble) else "")
    number = await left(url, task)
    while await phase_of(url, task.job_id) is not Phase.COMPLETED:
        await SystemClock().sleep(0.01)
    trouble["times"] = 4
    executed = await attempt(url, task.model_copy(update={"may_be_there": True, "number": number}), journal)

    assert executed.outcome == SUCCEEDED
    assert trouble["times"] == 0
    assert len(fake.log) == 1


def _is_troubled(request: web.Request, trouble: dict[str, int]) -> bool:
    is_struck = trouble["times"] > 0 and request.path != "/ws"
    trouble["times"] -= is_struck
    return is_struck


async def test_where_nothing_listens_it_may_still_be_known_later(
    serving: Serving, task: Task, journal: Any
) -> None:
    with serve(FakeComfy().app) as url:
        pass
    executed = await attempt(url, task.model_copy(update={"may_be_there": True, "number": 1.0}), journal)

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.SERVER)
    assert executed.may_run
    assert journal.steps == []


async def test_an_older_failure_of_the_same_job_is_tried_again(
    serving: Serving, task: Task, journal: Any, until: Any
) -> None:
    fake, url = serving(script="oom,ok")
    await left(url, task)
    await until(lambda: fake.log[0]["end"] == "error")

    executed = await attempt(url, task.model_copy(update={"may_be_there": True}), journal)

    assert executed.outcome == SUCCEEDED
    assert len(fake.log) == 2


async def test_the_failure_of_the_very_run_that_was_left_is_its_outcome(
    serving: Serving, task: Task, journal: Any, until: Any
) -> None:
    fake, url = serving(script="oom,ok")
    number = await left(url, task)
    await until(lambda: fake.log[0]["end"] == "error")

    executed = await attempt(url, task.model_copy(update={"may_be_there": True, "number": number}), journal)

    assert executed.outcome.reason is Reason.OOM
    assert len(fake.log) == 1


# --- servers that die ---------------------------------------------------------------------------


async def test_a_server_that_is_gone_in_mid_prompt_has_lost_the_attempt(
    tmp_path: Path, task: Task, journal: Any, hasty: Any
) -> None:
    with fake_comfy(script="hang", log=tmp_path / "log") as server:
        running = asyncio.create_task(attempt(server.url, task, journal, clock=hasty(20)))
        while await phase_of(server.url, task.job_id) is not Phase.IN_PROGRESS:
            await SystemClock().sleep(0.01)
        server.process.send_signal(signal.SIGKILL)
        executed = await running

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.SERVER)
    assert "execution_start" in executed.outcome.evidence


async def test_a_server_that_was_restarted_under_a_prompt_crashed(
    tmp_path: Path, task: Task, journal: Any
) -> None:
    log = tmp_path / "log"
    with fake_comfy(script="hang", log=log) as server:
        port = int(server.url.rpartition(":")[2])
        running = asyncio.create_task(attempt(server.url, task, journal))
        while await phase_of(server.url, task.job_id) is not Phase.IN_PROGRESS:
            await SystemClock().sleep(0.01)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(10)
    with fake_comfy(log=log, port=port):
        executed = await running

    assert (executed.outcome.verdict, executed.outcome.reason) == (Verdict.TRANSIENT, Reason.CRASH)
    assert "forgotten" in executed.outcome.message
