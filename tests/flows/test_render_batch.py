"""The flow, called from Python, on a real Prefect server: tasks, retries, limits, caches, artifacts."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    ArtifactFilterKey,
    FlowRunFilter,
    FlowRunFilterName,
    LogFilter,
    LogFilterFlowRunId,
    TaskRunFilter,
    TaskRunFilterFlowRunId,
)
from prefect.client.schemas.objects import State, TaskRun
from prefect.client.schemas.sorting import LogSort

from comfyfarm.clock import SystemClock
from comfyfarm.control.state import ControlStatus
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import examine_all
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import plan_request, record_batch
from comfyfarm.ledger.ledger import open_ledger
from fake_server.comfy import ExtraNodes, FakeComfy
from fake_server.serve import serve
from flows.render_batch import render_batch
from flows.render_shard import render_shard

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
    (dead,) = [one for one in first.log if one["end"] == "error"]
    async with get_client() as client:
        (letter,) = await client.read_artifacts(
            artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[f"dead-letter-{dead['prompt_id']}"]))
        )
    assert letter.description == reason
    assert "scripted error of the fake server" in str(letter.data)
    assert f"comfyfarm dead-letters requeue {dead['prompt_id']}" in str(letter.data)
    event = await dead_letter_event(dead["prompt_id"])
    assert event["payload"]["reason"] == reason


async def test_a_job_that_comes_too_late_is_told_of_as_well(
    project: Path, fakes: tuple[FakeComfy, FakeComfy, list[str]], prefect_api: ControlStatus
) -> None:
    first, _, urls = fakes
    jobs = Path(job_file(project, 2))
    good, bad = map(json.loads, jobs.read_text().splitlines())
    jobs.write_text(f"{json.dumps(good)}\n{json.dumps(bad | {'deadline': '2001-09-09T01:46:40Z'})}\n")

    state: State[Any] = await render_batch(
        job_file=str(jobs),
        out=str(project / "out"),
        servers=urls[:1],
        batch="late-batch",
        host="flow-host",
        return_state=True,
    )

    assert state.message == "1 of 2 jobs dead"
    assert len(first.log) == 1
    async with await open_ledger(prefect_api.ledger_url) as ledger:
        (late,) = [job for job in await ledger.jobs("late-batch") if job.reason_class == "too late"]
    event = await dead_letter_event(late.id)
    assert event["payload"]["reason_class"] == "too late"
    assert event["payload"]["reason"] == late.reason


async def dead_letter_event(job_id: str) -> dict[str, Any]:
    """The event of a dead job; Prefect takes a moment to write it."""
    wanted = {
        "filter": {
            "event": {"name": ["comfyfarm.job.dead-lettered"]},
            "resource": {"id": [f"comfyfarm.job.{job_id}"]},
        }
    }
    async with get_client() as client, asyncio.timeout(30):
        while True:
            found = (await client.request("POST", "/events/filter", json=wanted)).json()["events"]
            if found:
                return dict(found[0])
            await SystemClock().sleep(0.2)


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
    assert {one.key for one in artifacts} == {
        "preflight-shown-batch",
        "results-shown-batch",
        "contact-sheet-shown-batch",
    }
    report = next(one for one in artifacts if str(one.key).startswith("preflight"))
    assert "api format, 0 errors" in str(report.data)
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


async def test_a_batch_that_no_server_can_run_leaves_nothing_in_the_ledger(
    project: Path,
    prefect_api: ControlStatus,
    fakes: tuple[FakeComfy, FakeComfy, list[str]],
    upscaling: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    *_, urls = fakes
    graph, lock = upscaling

    state = await render_batch(
        workflow=graph, lock=lock, out=str(project / "out"), servers=urls, batch="nowhere", return_state=True
    )

    assert state.is_failed()
    assert "upscale_models/sub/a.pth" in str(state.message)
    async with await open_ledger(prefect_api.ledger_url) as ledger:
        assert "nowhere" not in {batch.name for batch in await ledger.batches()}


async def test_the_log_tells_how_fast_a_model_file_came(
    project: Path, upscaling: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    fake = FakeComfy(models_dir=project / "models")
    graph, lock = upscaling
    with serve(fake.app) as url:
        state = await render_batch(
            workflow=graph,
            lock=lock,
            out=str(project / "out"),
            servers=[url],
            batch="brought",
            models_dir=str(project / "models"),
            return_state=True,
        )

    assert state.is_completed(), state
    lines = await log_lines("sub/a.pth")
    assert any(
        re.search(r"upscale_models/sub/a\.pth on .+: 3\.0 MB in [\d.]+ s, [\d.]+ MB/s", one) for one in lines
    )


async def test_what_an_earlier_job_of_the_batch_needs_is_brought_too(
    project: Path, prefect_api: ControlStatus, upscaling: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    graph, lock = upscaling
    fake = FakeComfy(models_dir=project / "models")
    with serve(fake.app) as url:
        given: dict[str, Any] = {"out": str(project / "out"), "servers": (url,), "batch": "grown"}
        earlier = RenderRequest(
            **given, workflow=graph, lock=lock, cache_dir=project / "cache", host="flow-host"
        )
        prepared = plan_request(earlier, read_sources(earlier), await examine_all(earlier.servers))
        async with await open_ledger(prefect_api.ledger_url) as ledger:
            await record_batch(ledger, earlier, prepared)

        state = await render_batch(
            job_file=job_file(project, 1),
            models_dir=str(project / "models"),
            return_state=True,
            **{**given, "servers": [url]},
        )

    assert state.message == "1 job succeeded"
    async with await open_ledger(prefect_api.ledger_url) as ledger:
        assert [job.status for job in await ledger.jobs("grown")] == ["succeeded"] * 2


async def log_lines(word: str) -> list[str]:
    """Lines of the dashboard that hold the word and an amount, once there are any."""
    async with get_client() as client:
        end = SystemClock().monotonic() + 20
        while SystemClock().monotonic() < end:
            logs = await client.read_logs(limit=200, sort=LogSort.TIMESTAMP_DESC)
            found = [log.message for log in logs if word in log.message and "MB" in log.message]
            if found:
                return found
            await SystemClock().sleep(0.3)
    return []


async def test_only_servers_on_which_the_workflow_can_run_get_it(project: Path) -> None:
    shipped = json.loads(resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes())
    poor, rich = FakeComfy(), FakeComfy(extra_nodes=ExtraNodes(classes={"Tint": shipped["EmptyImage"]}))
    graph = json.loads(WORKFLOW.read_text())
    graph["1"]["class_type"] = "Tint"
    with serve(poor.app) as first, serve(rich.app) as second:
        state = await render_batch(
            workflow=graph,
            out=str(project / "out"),
            servers=[first, second],
            batch="tinted",
            host="flow-host",
            return_state=True,
        )

    assert state.is_completed(), state
    assert (len(poor.log), len(rich.log)) == (0, 1)
    lanes = [one for one in await task_runs("tinted", recorded=3) if one.name.startswith("lane-")]
    assert [lane.name for lane in lanes] == [f"lane-{second.partition('://')[2]}"]


async def test_the_lanes_of_servers_on_several_hosts_carry_the_host_of_each(
    project: Path, prefect_api: ControlStatus, fakes: tuple[FakeComfy, FakeComfy, list[str]]
) -> None:
    *_, urls = fakes
    request = RenderRequest(
        job_file=job_file(project, 4),
        out=str(project / "out"),
        servers=tuple(urls),
        batch="spread",
        cache_dir=project / "cache",
        host="flow-host",
    )
    servers = await examine_all(urls)
    async with await open_ledger(prefect_api.ledger_url) as ledger:
        await record_batch(ledger, request, plan_request(request, read_sources(request), servers))

    await render_shard("spread", "flow-host", dict(zip(urls, ("box-a", "box-b"), strict=True)))

    lanes = [one for one in await task_runs("spread", recorded=10) if one.name.startswith("lane-")]
    tags = {lane.name: set(lane.tags) for lane in lanes}
    names = [f"lane-{url.partition('://')[2]}" for url in urls]
    assert tags == {names[0]: {"gpu:box-a", "gpu:cpu"}, names[1]: {"gpu:box-b", "gpu:cpu"}}
    async with get_client() as client:
        for tag in ("gpu:box-a", "gpu:box-b"):
            assert (await client.read_concurrency_limit_by_tag(tag)).concurrency_limit == 1


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
