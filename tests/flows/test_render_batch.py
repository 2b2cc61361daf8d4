"""The flow, called from Python, on a real Prefect server: tasks, retries, limits, caches, artifacts."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterName,
    LogFilter,
    LogFilterFlowRunId,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import State, TaskRun

from comfyfarm.clock import SystemClock
from comfyfarm.control.state import ControlStatus
from fake_server.comfy import FakeComfy
from fake_server.serve import serve
from flows.render_batch import render_batch

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.timeout(180),
    # Prefect's own clients leave sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "infra" / "demo_data" / "model_free.json"


@pytest.fixture
def fakes() -> Iterator[tuple[FakeComfy, FakeComfy, list[str]]]:
    pair = (FakeComfy(prompt_seconds=0.1), FakeComfy(prompt_seconds=0.1))
    with ExitStack() as stack:
        yield (*pair, [stack.enter_context(serve(fake.app)) for fake in pair])


@pytest.fixture
def project(tmp_path: Path, prefect_api: ControlStatus, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMFYFARM_LEDGER", prefect_api.ledger_url)
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMFYFARM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def job_file(folder: Path, count: int) -> str:
    lines = [{"workflow": str(WORKFLOW), "set": {"1.color": n}} for n in range(count)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "jobs.jsonl")


async def run(project: Path, urls: list[str], count: int, batch: str) -> State[Any]:
    state: State[Any] = await render_batch(
        job_file=job_file(project, count),
        out=str(project / "out"),
        servers=urls,
        batch=batch,
        host="flow-host",
        return_state=True,
    )
    return state


async def task_runs(batch: str, *, recorded: int) -> list[TaskRun]:
    """The shard's task runs, once the server has recorded that many in an end state."""
    async with get_client() as client:
        end = SystemClock().monotonic() + 30
        while True:
            (shard,) = await client.read_flow_runs(
                flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=[f"{batch} on flow-host"]))
            )
            found = await client.read_task_runs(
                task_run_filter=TaskRunFilter(flow_run_id=TaskRunFilterFlowRunId(any_=[shard.id]))
            )
            over = [one for one in found if one.state is not None and one.state.is_final()]
            if len(over) >= recorded or SystemClock().monotonic() > end:
                return over
            await SystemClock().sleep(0.2)


async def test_each_job_is_one_render_and_one_sync_and_a_retry_can_be_seen(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    first, second, urls = fakes
    first.script("ok,oom,ok")

    state = await run(project, urls, 8, "seen-batch")

    assert state.is_completed(), state
    assert state.message == "8 jobs succeeded"
    runs = await task_runs("seen-batch", recorded=18)
    kinds = [one.name.partition("-")[0] for one in runs]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"render": 8, "sync": 8, "lane": 2}
    assert sorted(one.run_count for one in runs if one.name.startswith("render-")) == [1] * 7 + [2]
    assert len(first.log) + len(second.log) == 9
    files = list((project / "out").rglob("*.png"))
    assert len({path.read_bytes() for path in files}) == 8


async def test_lanes_hold_gpu_slots_under_limits_that_are_there(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    *_, urls = fakes

    await run(project, urls, 2, "limit-batch")

    async with get_client() as client:
        host = await client.read_concurrency_limit_by_tag("gpu:flow-host")
        model = await client.read_concurrency_limit_by_tag("gpu:cpu")
    lanes = [one for one in await task_runs("limit-batch", recorded=6) if one.name.startswith("lane-")]
    assert host.concurrency_limit == 2
    assert model.concurrency_limit >= 2
    assert host.active_slots == []
    assert all({"gpu:flow-host", "gpu:cpu"} <= set(lane.tags) for lane in lanes)


async def test_a_dead_job_is_a_failed_task_and_the_others_are_done(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    first, _, urls = fakes
    first.script("error,ok")

    state = await run(project, urls[:1], 3, "dead-batch")

    assert state.is_failed()
    assert state.message == "1 of 3 jobs dead"
    failed = [one for one in await task_runs("dead-batch", recorded=6) if one.state and one.state.is_failed()]
    (render,) = failed
    assert render.run_count == 1
    reason = "node failed: node 3 SaveImage: RuntimeError: scripted error of the fake server"
    assert (render.state and render.state.message) == reason
    assert len(first.log) == 3


async def test_a_second_run_renders_nothing_and_takes_preflight_from_the_cache(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    first, second, urls = fakes
    await run(project, urls, 3, "again-batch")
    accepted = len(first.log) + len(second.log)

    state = await run(project, urls, 3, "again-batch")

    assert state.is_completed()
    assert len(first.log) + len(second.log) == accepted
    async with get_client() as client:
        end = SystemClock().monotonic() + 20
        names: set[str] = set()
        while "Cached" not in names and SystemClock().monotonic() < end:
            runs = await client.read_task_runs(limit=200)
            names = {str(one.state_name) for one in runs if one.name.startswith("preflight")}
            await SystemClock().sleep(0.3)
    assert "Cached" in names


async def test_logs_of_the_core_and_artifacts_are_in_the_dashboard(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    *_, urls = fakes

    await run(project, urls, 2, "shown-batch")

    async with get_client() as client:
        (shard,) = await client.read_flow_runs(
            flow_run_filter=FlowRunFilter(name=FlowRunFilterName(any_=["shown-batch on flow-host"]))
        )
        (parent,) = [
            one
            for one in await client.read_flow_runs(limit=50)
            if one.parameters.get("batch") == "shown-batch" and one.parent_task_run_id is None
        ]
        artifacts = await client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[parent.id]))
        )
        end = SystemClock().monotonic() + 20
        lines: list[str] = []
        while not any("succeeded" in line for line in lines) and SystemClock().monotonic() < end:
            logs = await client.read_logs(
                log_filter=LogFilter(flow_run_id=LogFilterFlowRunId(any_=[shard.id]))
            )
            lines = [log.message for log in logs if log.name.startswith("comfyfarm")]
            await SystemClock().sleep(0.3)
    assert any("succeeded" in line for line in lines)
    assert {one.key for one in artifacts} == {"results-shown-batch", "contact-sheet-shown-batch"}
    sheet = next(one for one in artifacts if str(one.key).startswith("contact"))
    assert str(sheet.data).count("data:image/jpeg;base64,") == 2


async def test_bad_input_fails_the_run_with_what_is_wrong(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    first, _, urls = fakes

    state = await render_batch(
        workflow={"1": {"class_type": "NoSuchNode", "inputs": {}}},
        out=str(project / "out"),
        servers=urls,
        host="flow-host",
        return_state=True,
    )

    assert state.is_failed()
    assert "NoSuchNode" in str(state.message)
    assert first.log == []


def test_it_runs_under_prefects_own_temporary_api(
    tmp_path: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    """No PREFECT_API_URL, no control server: what a script that imports the flow gets."""
    *_, urls = fakes
    code = (
        "import asyncio, sys\n"
        "from flows.render_batch import render_batch\n"
        f"given = dict(job_file={job_file(tmp_path, 3)!r}, out={str(tmp_path / 'out')!r}, servers={urls!r})\n"
        "state = asyncio.run(render_batch(**given, return_state=True))\n"
        "sys.exit(0 if state.is_completed() else 1)\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    own = {
        "COMFYFARM_LEDGER": f"sqlite:///{tmp_path / 'ledger.db'}",
        "COMFYFARM_STATE_DIR": str(tmp_path / "state"),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    }

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**kept, **own},
        capture_output=True,
        text=True,
        timeout=170,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list((tmp_path / "out").rglob("*.png"))) == 3
