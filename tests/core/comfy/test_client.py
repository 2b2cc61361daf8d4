"""The HTTP client against the fake server, old servers, and servers that are none."""

import hashlib
import math
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.session import Session
from comfyfarm.comfy.wire import OutputEntry, Phase, PromptState
from comfyfarm.errors import ProtocolError, ServerUnreachable
from comfyfarm.ids import JobId

Serving = Callable[..., Any]
Answering = Callable[[dict[str, Any]], str]


def answers(body: Any, *, status: int = 200) -> Any:
    async def handle(_request: web.Request) -> web.Response:
        if isinstance(body, bytes):
            return web.Response(body=body, status=status)
        return web.json_response(body, status=status)

    return handle


async def submitted(client: ComfyClient, graph: dict[str, Any], job_id: JobId) -> float:
    answer = await client.submit(graph, prompt_id=job_id, client_id="me")
    assert answer.is_accepted
    assert answer.number is not None
    return answer.number


async def until(client: ComfyClient, job_id: JobId, *phases: Phase) -> PromptState:
    """The prompt's state once it is in one of the phases; the test's own time limit bounds it."""
    while True:
        state = await client.prompt_state(job_id)
        if state.phase in phases:
            return state
        await SystemClock().sleep(0.01)


async def test_a_prompt_is_accepted_followed_and_found_in_the_history(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    fake, url = serving()
    async with ComfyClient(url) as client:
        answer = await client.submit(graph, prompt_id=job_id, client_id="me")
        state = await until(client, job_id, Phase.COMPLETED)
        entry = await client.history(job_id)

    assert answer.is_accepted
    assert answer.prompt_id == job_id
    assert state.number == answer.number
    assert entry is not None
    assert entry.succeeded
    assert entry.number == answer.number
    assert [(one.node, one.subfolder) for one in entry.files()] == [("2", job_id)]
    assert [(one["prompt_id"], one["client_id"]) for one in fake.log] == [(job_id, "me")]


async def test_a_refusal_is_an_answer(serving: Serving, graph: dict[str, Any], job_id: JobId) -> None:
    _, url = serving()
    graph["1"]["inputs"]["width"] = 0
    async with ComfyClient(url) as client:
        answer = await client.submit(graph, prompt_id=job_id, client_id="me")
        state = await client.prompt_state(job_id)

    assert answer.status == 400
    assert not answer.is_accepted
    assert answer.error is not None
    assert list(answer.node_errors) == ["1"]
    assert state == PromptState(phase=Phase.UNKNOWN)


async def test_an_error_500_is_an_answer_with_its_text(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    _, url = serving(script="500")
    async with ComfyClient(url) as client:
        answer = await client.submit(graph, prompt_id=job_id, client_id="me")

    assert (answer.status, answer.number) == (500, None)
    assert "500" in answer.text


async def test_retry_after_is_read(answering: Answering, graph: dict[str, Any], job_id: JobId) -> None:
    async def busy(_request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "7"})

    async def odd(_request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})

    for handler, expected in ((busy, 7.0), (odd, None)):
        async with ComfyClient(answering({"POST /prompt": handler})) as client:
            answer = await client.submit(graph, prompt_id=job_id, client_id="me")
        assert answer.retry_after_s == expected


async def test_pending_and_running_prompts_are_told_apart(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    _, url = serving(busy=1, script="hang*2", prompt_seconds=0.05)
    other = JobId("00000000-0000-4000-8000-000000000001")
    async with ComfyClient(url) as client:
        first = await submitted(client, graph, job_id)
        second = await submitted(client, graph, other)
        running = await until(client, job_id, Phase.IN_PROGRESS)
        pending = await client.prompt_state(other)
        queue = await client.queue()

    assert running == PromptState(phase=Phase.IN_PROGRESS, number=first)
    assert pending == PromptState(phase=Phase.PENDING, number=second)
    assert queue == {Phase.IN_PROGRESS: ((first, job_id),), Phase.PENDING: ((second, other),)}


async def test_cancel_ends_a_running_and_a_pending_prompt(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    fake, url = serving(script="hang*2")
    other = JobId("00000000-0000-4000-8000-000000000001")
    async with ComfyClient(url) as client:
        await submitted(client, graph, job_id)
        await submitted(client, graph, other)
        await until(client, job_id, Phase.IN_PROGRESS)
        await client.cancel(other)
        gone = await client.prompt_state(other)
        await client.cancel(job_id)
        ended = await until(client, job_id, Phase.CANCELLED)

    assert gone.phase is Phase.UNKNOWN
    assert ended.phase.is_over
    assert [one["end"] for one in fake.log] == ["interrupted", None]


# --- servers without /api/jobs ------------------------------------------------------------------


def old_server(queue: Any, history: Any, seen: list[Any] | None = None) -> dict[str, Any]:
    async def note(request: web.Request) -> web.Response:
        if seen is not None:
            seen.append((request.path, await request.json()))
        return web.Response()

    return {
        "GET /queue": answers(queue),
        "GET /history/{id}": answers(history),
        "POST /queue": note,
        "POST /interrupt": note,
    }


def entry(job_id: JobId, *messages: list[Any], number: int = 4) -> dict[str, Any]:
    return {job_id: {"prompt": [number, job_id, {}, {}, []], "status": {"messages": list(messages)}}}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("queue_running", Phase.IN_PROGRESS),
        ("queue_pending", Phase.PENDING),
        ("success", Phase.COMPLETED),
        ("error", Phase.FAILED),
        ("nowhere", Phase.UNKNOWN),
    ],
)
async def test_an_old_servers_queue_and_history_tell_the_same(
    answering: Answering, job_id: JobId, where: str, expected: Phase
) -> None:
    queue: dict[str, Any] = {"queue_running": [], "queue_pending": []}
    if where in queue:
        queue[where] = [[2, "other", {}], [4, job_id, {}]]
    history = entry(job_id, [f"execution_{where}", {}]) if where in {"success", "error"} else {}
    async with ComfyClient(answering(old_server(queue, history))) as client:
        state = await client.prompt_state(job_id)

    assert state.phase is expected
    assert state.number == (None if expected is Phase.UNKNOWN else 4)


async def test_pending_prompts_are_in_the_order_in_which_they_run(answering: Answering) -> None:
    queue = {"queue_running": [], "queue_pending": [[9, "c"], [-1, "z"], [3, "b"], [3, "a"], ["x", "y"], 7]}
    async with ComfyClient(answering(old_server(queue, {}))) as client:
        found = await client.queue()

    assert found[Phase.PENDING] == ((-1.0, "z"), (3.0, "a"), (3.0, "b"), (9.0, "c"))


async def test_an_old_server_is_cancelled_by_queue_and_interrupt(answering: Answering, job_id: JobId) -> None:
    seen: list[Any] = []
    async with ComfyClient(answering(old_server({}, {}, seen))) as client:
        await client.cancel(job_id)

    assert seen == [("/queue", {"delete": [job_id]}), ("/interrupt", {"prompt_id": job_id})]


async def test_a_broken_entry_of_somebody_else_does_not_hide_ours(
    answering: Answering, job_id: JobId
) -> None:
    handlers = old_server({}, entry(job_id, ["execution_success", {}]))
    handlers["GET /api/jobs/{id}"] = answers(b"500 Internal Server Error", status=500)
    async with ComfyClient(answering(handlers)) as client:
        state = await client.prompt_state(job_id)

    assert state.phase is Phase.COMPLETED


async def test_nan_in_an_answer_is_read(answering: Answering, job_id: JobId) -> None:
    body = b'{"%s": {"outputs": {"9": {"value": [NaN, -Infinity]}}, "status": {"messages": []}}}'
    async with ComfyClient(answering({"GET /history/{id}": answers(body % job_id.encode())})) as client:
        found = await client.history(job_id)

    assert found is not None
    assert math.isnan(found.outputs["9"]["value"][0])


# --- servers that are none ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"null", b"[]", b'"x"', b"[" * 100_000, b'{"status": "resting"}']
)
async def test_garbage_is_named_as_such(answering: Answering, job_id: JobId, body: bytes) -> None:
    routes = ["GET /api/jobs/{id}", "GET /queue", "GET /history/{id}", "GET /system_stats"]
    async with ComfyClient(answering({route: answers(body) for route in routes})) as client:
        with pytest.raises(ProtocolError, match="answered what ComfyUI would not"):
            await client.prompt_state(job_id)
        if body != b'{"status": "resting"}':
            with pytest.raises(ProtocolError, match="GET /system_stats"):
                await client.system_stats()
            with pytest.raises(ProtocolError):
                await client.history(job_id)


async def test_a_device_that_is_none_is_a_protocol_error(answering: Answering) -> None:
    for devices in (["gpu"], [{"name": None}], [{"name": "x", "vram_total": "much"}]):
        async with ComfyClient(answering({"GET /system_stats": answers({"devices": devices})})) as client:
            with pytest.raises(ProtocolError, match="describes no device"):
                await client.system_stats()


async def test_version_and_device_are_told(serving: Serving) -> None:
    _, url = serving(device="NVIDIA GeForce RTX 4090")
    async with ComfyClient(url) as client:
        stats = await client.system_stats()

    assert stats.version == "0.27.0"
    assert "RTX 4090" in stats.device.name
    assert stats.device.vram_total > 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "garbage", "http://[bad", "http://", "ftp://x"])
async def test_what_does_not_answer_is_unreachable(url: str, job_id: JobId) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = url.format(port=probe.getsockname()[1])
        async with ComfyClient(address) as client:
            with pytest.raises(ServerUnreachable):
                await client.system_stats()
            with pytest.raises(ServerUnreachable):
                await client.submit({}, prompt_id=job_id, client_id="me")


async def test_a_silent_server_is_given_up_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with ComfyClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2) as client:
            with pytest.raises(ServerUnreachable, match="ReadTimeout"):
                await client.queue()


async def test_user_and_password_of_the_address_are_sent_and_no_redirect_is_followed(
    answering: Answering,
) -> None:
    async def queue(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Basic bWU6cEBzcw==":
            raise web.HTTPFound("/queue")
        return web.json_response({"queue_running": [], "queue_pending": []})

    url = answering({"GET /queue": queue})
    async with ComfyClient(url.replace("://", "://me:p%40ss@")) as known, ComfyClient(url) as stranger:
        assert set((await known.queue()).values()) == {()}
        with pytest.raises(ProtocolError, match="answered 302"):
            await stranger.queue()


async def test_a_password_in_the_address_is_not_shown() -> None:
    async with ComfyClient("http://me:hunter2@127.0.0.1:1") as client:
        with pytest.raises(ServerUnreachable) as caught:
            await client.system_stats()

    assert "hunter2" not in str(caught.value)


async def test_an_answer_that_comes_byte_by_byte_has_its_limit_as_a_whole(answering: Answering) -> None:
    async def trickle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(200):
            await answer.write(b" ")
            await SystemClock().sleep(0.05)
        return answer

    url = answering({"GET /queue": trickle, "GET /system_stats": trickle})
    async with ComfyClient(url, timeout_s=0.2) as client:
        with pytest.raises(ServerUnreachable, match=r"no whole answer in 0\.6 s"):
            await client.queue()
        with pytest.raises(ServerUnreachable, match=r"no whole answer in 0\.3 s"):
            await client.system_stats(timeout_s=0.3)


async def test_user_and_password_may_come_from_the_environment(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str | None] = []

    async def queue(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization"))
        return web.json_response({"queue_running": [], "queue_pending": []})

    async def socket(request: web.Request) -> web.StreamResponse:
        heard.append(request.headers.get("Authorization"))
        made = web.WebSocketResponse()
        await made.prepare(request)
        async for _ in made:
            pass
        return made

    monkeypatch.setenv("COMFYFARM_SERVER_AUTH", "me:p@ss")
    async with Session(answering({"GET /queue": queue, "GET /ws": socket})) as session:
        assert await session.listening(10)
        await session.client.queue()

    assert heard == ["Basic bWU6cEBzcw=="] * 2


# --- files --------------------------------------------------------------------------------------


async def test_an_upload_returns_the_name_to_use(serving: Serving, tmp_path: Path) -> None:
    fake, url = serving()
    file = tmp_path / "Gesicht ä (1).png"
    file.write_bytes(b"not really a picture")
    async with ComfyClient(url) as client:
        name = await client.upload(file, name=file.name, subfolder="ab12")
        again = await client.upload(file, name=file.name, subfolder="ab12")

    assert name.startswith("ab12/")
    assert again == name
    assert (fake.input_dir / name).read_bytes() == b"not really a picture"


@pytest.mark.parametrize(("body", "status"), [(b"", 500), (b"", 413), (b"[]", 200), (b"{}", 200)])
async def test_a_refused_upload_is_the_servers_fault(
    answering: Answering, tmp_path: Path, body: bytes, status: int
) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    async with ComfyClient(answering({"POST /upload/image": answers(body, status=status)})) as client:
        with pytest.raises(ProtocolError, match=f"/upload/image answered {status}"):
            await client.upload(tmp_path / "a.png", name="a.png", subfolder="")


async def test_a_download_is_hashed_on_its_way(serving: Serving, tmp_path: Path) -> None:
    fake, url = serving()
    data = bytes(range(256)) * 20_000
    (fake.output_dir / "sub").mkdir()
    (fake.output_dir / "sub" / "v.mp4").write_bytes(data)
    async with ComfyClient(url) as client:
        entry = OutputEntry(node="9", key="images", filename="v.mp4", subfolder="sub")
        sha256, size = await client.download(entry, tmp_path / "v.mp4")

    assert (sha256, size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert (tmp_path / "v.mp4").read_bytes() == data


async def test_a_file_that_was_taken_away_is_named(serving: Serving, tmp_path: Path) -> None:
    _, url = serving()
    async with ComfyClient(url) as client:
        with pytest.raises(ProtocolError, match=r"/view of gone\.png: 404"):
            await client.download(OutputEntry(node="9", key="images", filename="gone.png"), tmp_path / "x")


async def test_a_truncated_download_is_no_download(answering: Answering, tmp_path: Path) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"x" * 400)
        assert request.transport is not None
        request.transport.close()
        return answer

    async with ComfyClient(answering({"GET /view": cut})) as client:
        with pytest.raises(ServerUnreachable):
            await client.download(OutputEntry(node="9", key="images", filename="a.png"), tmp_path / "x")


async def test_models_are_unloaded_on_request(answering: Answering) -> None:
    seen: list[Any] = []

    async def free(request: web.Request) -> web.Response:
        seen.append(await request.json())
        return web.Response()

    async with ComfyClient(answering({"POST /free": free})) as client:
        await client.free()

    assert seen == [{"unload_models": True, "free_memory": True}]


async def test_an_answer_without_end_is_refused(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    _, url = serving()
    async with ComfyClient(url) as client:
        assert len(await client.object_info()) > 100_000
        monkeypatch.setattr("comfyfarm.comfy.http.LIMIT_BYTES", 100_000)
        with pytest.raises(ServerUnreachable, match="an answer of more than 100000 bytes"):
            await client.object_info()
