"""One socket for a server: messages reach whoever follows their prompt, also after the socket was cut."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from aiohttp import web

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.events import EventStream, Link
from comfyfarm.comfy.session import Inbox, Session
from comfyfarm.comfy.wire import Message, Phase, read_message
from comfyfarm.ids import JobId

Serving = Callable[..., Any]
Answering = Callable[[dict[str, Any]], str]


class SwiftClock(SystemClock):
    """Pauses are short, and remembered."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(0.001)


async def heard_until_end(inbox: Inbox) -> None:
    while not inbox.has_ended:
        await inbox.wait(10)


async def test_the_messages_of_a_prompt_reach_its_follower(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    _, url = serving()
    async with Session(url) as session:
        assert await session.listening(10)
        with session.follow(job_id) as inbox, session.follow(JobId("other")) as other:
            assert not inbox.latest
            await session.client.submit(graph, prompt_id=job_id, client_id=session.client_id)
            await heard_until_end(inbox)

    assert inbox.has_started
    assert "execution_start" in inbox.latest[0]
    assert not other.has_started


async def test_after_a_cut_the_socket_is_opened_again(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    fake, url = serving(script="drop,ok", prompt_seconds=0.2)
    after = JobId("00000000-0000-4000-8000-000000000001")
    async with Session(url) as session:
        assert await session.listening(10)
        with session.follow(job_id), session.follow(after) as inbox:
            await session.client.submit(graph, prompt_id=job_id, client_id=session.client_id)
            while not fake.log or fake.log[0]["end"] is None:
                await SystemClock().sleep(0.01)
            assert await session.listening(10)
            await session.client.submit(graph, prompt_id=after, client_id=session.client_id)
            await heard_until_end(inbox)

    assert fake.log[0]["end"] == "success"


async def test_two_sessions_hear_their_own_prompts_only(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    _, url = serving()
    async with Session(url) as mine, Session(url) as theirs:
        assert mine.client_id != theirs.client_id
        assert await mine.listening(10)
        assert await theirs.listening(10)
        with mine.follow(job_id) as inbox, theirs.follow(job_id) as strange:
            await mine.client.submit(graph, prompt_id=job_id, client_id=mine.client_id)
            await heard_until_end(inbox)

    assert not strange.has_started


async def test_a_server_without_a_socket_is_no_obstacle(answering: Answering) -> None:
    async with Session(answering({}), clock=SwiftClock()) as session:
        assert not await session.listening(0.05)
        with session.follow(JobId("j")) as inbox:
            await asyncio.wait_for(inbox.wait(10), 5)  # woken by the failed try


async def test_a_socket_that_speaks_nonsense_is_read_on(answering: Answering) -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for text in ("{", "[]", '{"type": 1}', "[" * 100_000, '{"type": "x", "data": {"prompt_id": ["j"]}}'):
            await socket.send_str(text)
        await socket.send_bytes(b"\0\0\0\1jpeg")
        await socket.send_str(
            '{"type": "executed", "data": {"prompt_id": "j", "output": "\\ud83d", "v": NaN}}'
        )
        await socket.send_str('{"type": "executing", "data": {"prompt_id": "j", "node": null}}')
        async for _ in socket:
            pass
        return socket

    async with Session(answering({"GET /ws": nonsense})) as session:
        with session.follow(JobId("j")) as inbox:
            await asyncio.wait_for(heard_until_end(inbox), 10)

    assert len(inbox.latest) == 2


# --- events -------------------------------------------------------------------------------------


async def first(events: AsyncIterator[Any], count: int) -> list[Any]:
    found = []
    async for event in events:
        found.append(event)
        if len(found) == count:
            break
    return found


async def test_the_stream_says_when_it_is_up_and_down(answering: Answering) -> None:
    async def one_message(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "status", "data": {"sid": request.query["clientId"]}})
        await socket.close()
        return socket

    clock = SwiftClock()
    stream = aiter(EventStream(answering({"GET /ws": one_message}), "me", clock=clock))
    try:
        found = await asyncio.wait_for(first(stream, 6), 20)
    finally:
        await stream.aclose()  # type: ignore[attr-defined]

    message = Message(type="status", data={"sid": "me"}, text='{"type": "status", "data": {"sid": "me"}}')
    assert found == [Link.UP, message, Link.DOWN, Link.UP, message, Link.DOWN]


async def test_pauses_grow_while_nothing_answers_and_not_beyond_five_seconds() -> None:
    clock = SwiftClock()
    stream = aiter(EventStream("http://127.0.0.1:1", "me", clock=clock))
    try:
        found = await asyncio.wait_for(first(stream, 8), 20)
    finally:
        await stream.aclose()  # type: ignore[attr-defined]

    assert set(found) == {Link.DOWN}
    assert clock.pauses[:7] == [0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:1/", "ws://h:1/ws?clientId=me"),
        ("https://h/sub", "wss://h/sub/ws?clientId=me"),
    ],
)
def test_the_sockets_address_follows_the_servers(url: str, address: str) -> None:
    assert EventStream(url, "me")._address == address


# --- inbox --------------------------------------------------------------------------------------


async def test_a_poll_that_sees_it_run_is_a_start() -> None:
    inbox = Inbox(SystemClock())
    inbox.note(Phase.PENDING)
    assert not inbox.has_started

    inbox.note(Phase.IN_PROGRESS)

    assert inbox.has_started


async def test_only_start_and_end_wake_the_follower() -> None:
    inbox = Inbox(SystemClock())
    inbox.put(Message(type="progress", data={"prompt_id": "j"}))
    waiter = asyncio.create_task(inbox.wait(20))
    await SystemClock().sleep(0.02)
    assert not waiter.done()

    inbox.put(Message(type="executing", data={"prompt_id": "j", "node": None}))

    await asyncio.wait_for(waiter, 5)
    assert inbox.has_ended


async def test_the_last_thirty_messages_are_kept_each_cut() -> None:
    inbox = Inbox(SystemClock())
    for number in range(40):
        data = {"prompt_id": "j", "value": number, "x": "y" * 5000}
        message = read_message(json.dumps({"type": "progress_state", "data": data}))
        assert message is not None
        inbox.put(message)

    assert len(inbox.latest) == 30
    assert '"value": 10' in inbox.latest[0]
    assert all(len(one) <= 2000 for one in inbox.latest)


async def test_a_connection_made_anew_hears_the_rest_of_a_prompt(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    fake, url = serving(prompt_seconds=2.0)
    async with Session(url) as session:
        assert await session.listening(10)
        with session.follow(job_id) as inbox:
            await session.client.submit(graph, prompt_id=job_id, client_id=session.client_id)
            while not (fake.log and fake.log[0]["started"]):
                await SystemClock().sleep(0.01)
            async with httpx.AsyncClient() as http:
                answer = await http.post(f"{url}/fake/script", json={"now": "forget-client"})
            assert answer.is_success  # the server has forgotten whose socket it is
            await session.reconnect()
            async with asyncio.timeout(10):
                await heard_until_end(inbox)

    assert fake.log[0]["end"] == "success"


def test_another_node_than_before_is_progress_and_the_same_is_none() -> None:
    clock = SwiftClock()
    inbox = Inbox(clock)
    inbox.put(Message(type="executing", data={"prompt_id": "p", "node": "3"}))
    heard = inbox.heard_at

    inbox.at_node("3")
    assert inbox.heard_at == heard
    inbox.at_node("4")
    assert inbox.heard_at > heard


async def test_a_condemned_server_wakes_its_followers() -> None:
    session = Session("http://127.0.0.1:1")
    with session.follow(JobId("p")) as inbox:
        waiting = asyncio.create_task(inbox.wait(30))
        await SystemClock().sleep(0)
        session.condemn("it is to be restarted")
        await asyncio.wait_for(waiting, 5)
    assert session.condemned == "it is to be restarted"
    session.absolve()
    assert session.condemned == ""
    await session.client.close()
