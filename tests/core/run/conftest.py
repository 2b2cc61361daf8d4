"""Fake servers, what a bad network does to them, a journal that remembers, a clock that hurries."""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.clock import SystemClock
from comfyfarm.ids import JobId
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

Mishap = Callable[[web.Request], str]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RecordingJournal:
    """Remembers what was committed, in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def submitting(self) -> None:
        self.steps.append("submitting")

    async def submitted(self, number: float) -> None:
        self.steps.append(f"submitted {number:g}")


class HastyClock(SystemClock):
    """Its seconds pass `speed` times as fast, so that long deadlines end soon; pauses are real ones."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def monotonic(self) -> float:
        return super().monotonic() * self._speed


@pytest.fixture
def journal() -> RecordingJournal:
    return RecordingJournal()


@pytest.fixture
def hasty() -> Callable[[float], HastyClock]:
    return HastyClock


@pytest.fixture
def serving() -> Iterator[Callable[..., tuple[FakeComfy, str]]]:
    """Start fake ComfyUI servers: the fake, and its address.

    `mishap` says of each request what a bad network does: "" nothing, "lose answer", "lose request", or
    the status that somebody in between answers.
    """
    with ExitStack() as stack:

        def start(*, mishap: Mishap | None = None, **options: Any) -> tuple[FakeComfy, str]:
            fake = FakeComfy(**options)
            stack.callback(fake.clean_up)
            if mishap is not None:
                fake.app.middlewares.insert(0, _with(mishap))
            return fake, stack.enter_context(serve(fake.app))

        yield start


def _with(mishap: Mishap) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        what = mishap(request)
        if what.isdigit():
            return web.Response(status=int(what))
        answer = await handler(request) if what != "lose request" else web.Response()
        if what and request.transport is not None:
            request.transport.abort()
        return answer

    return middleware


@pytest.fixture
def job_id() -> JobId:
    return JobId(str(uuid.uuid4()))


@pytest.fixture
def graph(job_id: JobId) -> dict[str, Any]:
    """A small picture, which no other job has."""
    color = uuid.UUID(job_id).int % 0xFFFFFF
    size = {"width": 16, "height": 16, "batch_size": 1, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {
            "class_type": "SaveImage",
            "inputs": {"images": ["1", 0], "filename_prefix": f"{job_id}/picture"},
        },
    }


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for a condition; the test's own time limit bounds it."""

    async def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            await SystemClock().sleep(0.01)

    return wait
