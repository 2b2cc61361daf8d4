"""Fake servers, a project with its own state, and the road through it without Prefect."""

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.clock import SystemClock
from comfyfarm.farm.local import render_here
from comfyfarm.farm.prepare import plan_jobs
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, row_of
from comfyfarm.farm.sources import read_sources
from comfyfarm.ledger.ledger import open_ledger
from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.retry import RetryPolicy
from comfyfarm.settings import read_settings
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
HASTE = RetryPolicy(base_s=0.05, cap_s=0.1)


@dataclass
class Served:
    """A fake server, and what it was asked."""

    fake: FakeComfy
    url: str
    requests: list[str] = field(default_factory=list)

    def asked(self, request: str) -> int:
        """How often, such as `POST /free`."""
        return self.requests.count(request)

    @property
    def prompts(self) -> list[str]:
        """Ids of the accepted prompts."""
        return [str(one["prompt_id"]) for one in self.fake.log]


@dataclass
class Project:
    """A workflow, a job file, and where their outputs, state and ledger are."""

    root: Path
    servers: list[Served] = field(default_factory=list)
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def ledger_url(self) -> str:
        return f"sqlite:///{self.root / 'ledger.db'}"

    def write(self, name: str, graph: dict[str, Any]) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(graph))
        return file

    def jobs(self, count: int, *, ids: list[str] | None = None, workflow: str = "w.json") -> Path:
        """A job file of `count` pictures of one colour each."""
        if workflow == "w.json":
            self.write("w.json", picture())
        lines: list[dict[str, Any]] = [
            {"workflow": workflow, "set": {"1.color": 1000 + n}} for n in range(count)
        ]
        for line, job_id in zip(lines, ids or [], strict=False):
            line["id"] = job_id
        file = self.root / "jobs.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    def request(self, file: Path, **more: Any) -> RenderRequest:
        """What the command would make of its arguments."""
        is_job_file = file.suffix == ".jsonl"
        fields: dict[str, Any] = {
            "workflow": None if is_job_file else str(file),
            "job_file": str(file) if is_job_file else None,
            "out": str(self.out),
            "servers": tuple(one.url for one in self.servers),
            "cache_dir": self.root / "cache",
            "host": "here",
            "retries": HASTE,
            "deadlines": Deadlines(cancel_s=5),
            **more,
        }
        return RenderRequest(**fields)

    async def render(self, request: RenderRequest) -> list[ResultRow]:
        """All stages, here; the rows afterwards."""
        batch = plan_jobs(request, read_sources(request)).batch
        ledger = await open_ledger(self.ledger_url)
        async with ledger:
            await render_here(
                request, ledger, settings=read_settings({"COMFYFARM_STATE_DIR": str(self.root / "state")})
            )
            return [row_of(job) for job in await ledger.jobs(batch)]

    async def rows(self, batch: str) -> list[ResultRow]:
        async with await open_ledger(self.ledger_url) as ledger:
            return [row_of(job) for job in await ledger.jobs(batch)]

    def prompts(self) -> Counter[str]:
        """How often each prompt was accepted, on all servers together."""
        return Counter(prompt for one in self.servers for prompt in one.prompts)

    def ended(self) -> int:
        return sum(1 for one in self.servers for prompt in one.fake.log if prompt["end"] == "success")

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """`comfyfarm render --local`, in a process of its own."""
        servers = [word for one in self.servers for word in ("--server", one.url)]
        environment = {
            **os.environ,
            "COMFYFARM_STATE_DIR": str(self.root / "state"),
            "COMFYFARM_LEDGER": self.ledger_url,
        }
        process = subprocess.Popen(
            [PROGRAM, "render", *arguments, *servers, "--out", str(self.out), "--local", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def files(self) -> list[str]:
        """What lies in the output folder."""
        return sorted(path.relative_to(self.out).as_posix() for path in self.out.rglob("*") if path.is_file())


def picture(**size: int) -> dict[str, Any]:
    """A graph without models: one picture of one colour."""
    inputs = {"width": 16, "height": 16, "batch_size": 1, "color": 0, **size}
    return {
        "1": {"class_type": "EmptyImage", "inputs": inputs},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "picture"}},
    }


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    found = Project(tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def serving(project: Project) -> Iterator[Callable[..., Served]]:
    """Start a fake server of the project."""
    with ExitStack() as stack:

        def start(**options: Any) -> Served:
            fake = FakeComfy(**options)
            stack.callback(fake.clean_up)
            requests: list[str] = []
            fake.app.middlewares.insert(0, _noting(requests))
            served = Served(fake, stack.enter_context(serve(fake.app)), requests)
            project.servers.append(served)
            return served

        yield start


def _noting(requests: list[str]) -> Any:
    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        requests.append(f"{request.method} {request.path}")
        answer: web.StreamResponse = await handler(request)
        return answer

    return note


@pytest.fixture
def ids() -> list[str]:
    """Ids for jobs whose fate a script decides."""
    return [str(uuid.uuid4()) for _ in range(12)]


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    """Wait for a condition; the test's own time limit bounds it."""

    async def wait(condition: Callable[[], bool]) -> None:
        while not condition():
            await SystemClock().sleep(0.02)

    return wait


@pytest.fixture
def graph() -> Callable[..., dict[str, Any]]:
    return picture
