"""A render that is killed or told to stop, and the same call again: the real command, a real ledger."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfyfarm.clock import SystemClock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import Phase
from comfyfarm.farm.results import ResultRow
from infra.comfy_servers import fake_comfy

Serving = Callable[..., Any]


def one_set_each(project: Any, rows: list[ResultRow]) -> bool:
    """Whether the output folder has every job's files once, and nothing else."""
    wanted = [f"{row.id}/{file.path}" for row in rows for file in row.files]
    wanted += [f"{row.id}/provenance.json" for row in rows]
    return bool(project.files() == sorted(wanted) and all(row.files for row in rows))


async def test_a_killed_render_goes_on_where_it_was(project: Any, serving: Serving, until: Any) -> None:
    for _ in range(2):
        serving(prompt_seconds=0.4)
    jobs = project.jobs(8)
    killed = project.start(str(jobs))
    await until(lambda: project.ended() >= 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait(10)
    done_before = {prompt["prompt_id"] for one in project.servers for prompt in one.fake.log if prompt["end"]}

    rows = await project.render(project.request(jobs))

    assert [row.status for row in rows] == ["succeeded"] * 8
    assert project.prompts() == {row.id: 1 for row in rows}
    assert len(done_before) < 8
    assert one_set_each(project, rows)


async def test_two_renders_at_once_share_the_jobs(project: Any, serving: Serving) -> None:
    for _ in range(2):
        serving(prompt_seconds=0.1)
    jobs = project.jobs(8)
    other = project.start(str(jobs))
    rows = await project.render(project.request(jobs))
    told, words = await asyncio.to_thread(other.communicate, timeout=50)

    assert other.returncode == 0, words
    assert [json.loads(line) for line in told.splitlines()] == [json.loads(row.as_json()) for row in rows]
    assert project.prompts() == {row.id: 1 for row in rows}
    assert one_set_each(project, rows)


async def test_a_first_signal_lets_what_runs_end(project: Any, serving: Serving, until: Any) -> None:
    serving(prompt_seconds=1.0)
    jobs = project.jobs(6)
    process = project.start(str(jobs))
    await until(lambda: any(prompt["started"] for one in project.servers for prompt in one.fake.log))
    process.send_signal(signal.SIGTERM)
    out, err = await asyncio.to_thread(process.communicate, timeout=30)

    assert process.returncode == 0, err  # in order, as it was told to
    accepted = project.prompts()
    succeeded = {row["id"] for row in map(json.loads, out.splitlines()) if row["status"] == "succeeded"}
    assert 1 <= len(succeeded) < 6
    assert set(accepted) == succeeded
    rows = await project.render(project.request(jobs))
    assert [row.status for row in rows] == ["succeeded"] * 6
    assert project.prompts() == {row.id: 1 for row in rows}


async def test_a_second_signal_interrupts_the_prompts_and_gives_the_jobs_back(
    project: Any, serving: Serving, until: Any
) -> None:
    serving(script="hang*4")
    jobs = project.jobs(4)
    process = project.start(str(jobs))
    await until(lambda: any(prompt["started"] for one in project.servers for prompt in one.fake.log))
    process.send_signal(signal.SIGINT)
    await SystemClock().sleep(0.7)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=20)

    told = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 3, err
    assert "the same call goes on" in err
    assert "Traceback" not in err
    assert {row["status"] for row in told} <= {"pending", "succeeded"}
    for one in project.servers:
        async with ComfyClient(one.url) as client:
            assert await client.queue() == {Phase.IN_PROGRESS: (), Phase.PENDING: ()}

    for one in project.servers:
        one.fake.script("ok")
    rows = await project.render(project.request(jobs))

    assert [row.status for row in rows] == ["succeeded"] * 4
    ends = [prompt["end"] for one in project.servers for prompt in one.fake.log]
    assert ends.count("success") == 4
    assert one_set_each(project, rows)


async def test_a_server_that_is_restarted_in_mid_batch_loses_no_job(
    project: Any, tmp_path: Path, until: Any
) -> None:
    log, journal = tmp_path / "server.log", tmp_path / "journal"
    jobs = project.jobs(4)
    with fake_comfy(log=log, journal=journal, prompt_seconds=0.3) as server:
        port = int(server.url.rpartition(":")[2])
        process = project.start(str(jobs), "--server", server.url)
        await until(lambda: journal.is_file() and journal.read_text().count('"started"') >= 2)
        server.process.kill()
        server.process.wait(10)
    with fake_comfy(log=log, journal=journal, port=port):
        while process.poll() is None:
            await SystemClock().sleep(0.05)
    out, err = process.communicate()

    assert process.returncode == 0, err
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["succeeded"] * 4
    assert len(list(project.out.rglob("*.png"))) == 4
