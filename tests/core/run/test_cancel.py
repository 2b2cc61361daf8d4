"""Cancel, proven: repeated until the server has let go."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.ids import JobId
from comfyfarm.run.cancel import cancel_prompt

Serving = Callable[..., Any]


async def cancelled(url: str, job_id: JobId, *, deadline_s: float = 10.0) -> bool:
    async with ComfyClient(url) as client:
        return await cancel_prompt(client, job_id, clock=SystemClock(), deadline_s=deadline_s)


async def test_a_running_prompt_is_off_the_server_when_it_returns(
    serving: Serving, graph: dict[str, Any], job_id: JobId, until: Any
) -> None:
    fake, url = serving(script="hang")
    async with ComfyClient(url) as client:
        await client.submit(graph, prompt_id=job_id, client_id="me")
        await until(lambda: bool(fake.log[0]["started"]))

        assert await cancelled(url, job_id)
        assert not (await client.prompt_state(job_id)).phase.is_live
    assert fake.log[0]["end"] == "interrupted"


async def test_a_cancel_that_is_swallowed_is_repeated(
    serving: Serving, graph: dict[str, Any], job_id: JobId
) -> None:
    swallowed = [0]

    def swallow(request: web.Request) -> str:
        if request.path.endswith("/cancel") and swallowed[0] < 2:
            swallowed[0] += 1
            return "200"
        return ""

    fake, url = serving(script="hang", mishap=swallow)
    async with ComfyClient(url) as client:
        await client.submit(graph, prompt_id=job_id, client_id="me")

    assert await cancelled(url, job_id)
    assert swallowed == [2]
    assert fake.log[0]["end"] in {"interrupted", None}


async def test_what_the_server_does_not_know_is_let_go(serving: Serving, job_id: JobId) -> None:
    _, url = serving()

    assert await cancelled(url, job_id)


async def test_an_unreachable_server_is_not_let_go(job_id: JobId) -> None:
    assert not await cancelled("http://127.0.0.1:1", job_id, deadline_s=0.3)
