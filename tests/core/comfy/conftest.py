"""Fake servers: the fake ComfyUI, and small ones that answer what it never would."""

import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.ids import JobId
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serving = Callable[..., tuple[FakeComfy, str]]
Answering = Callable[[dict[str, Handler]], str]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Start fake ComfyUI servers: the fake, and its address."""
    with ExitStack() as stack:

        def start(**options: Any) -> tuple[FakeComfy, str]:
            fake = FakeComfy(**options)
            stack.callback(fake.clean_up)
            return fake, stack.enter_context(serve(fake.app))

        yield start


@pytest.fixture
def answering() -> Iterator[Answering]:
    """Start a server of handlers by `METHOD /path`; all else is 404 without JSON, as on old servers."""
    with ExitStack() as stack:

        def start(handlers: dict[str, Handler]) -> str:
            app = web.Application()
            for route, handler in handlers.items():
                method, _, path = route.partition(" ")
                app.router.add_route(method, path, handler)
            return stack.enter_context(serve(app))

        yield start


@pytest.fixture
def job_id() -> JobId:
    return JobId(str(uuid.uuid4()))


@pytest.fixture
def graph(job_id: JobId) -> dict[str, Any]:
    """One small picture of its own."""
    color = uuid.UUID(job_id).int % 0xFFFFFF
    return {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 16, "height": 16, "batch_size": 1, "color": color},
        },
        "2": {
            "class_type": "SaveImage",
            "inputs": {"images": ["1", 0], "filename_prefix": f"{job_id}/picture"},
        },
    }
