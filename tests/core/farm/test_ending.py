"""What a dead process left on servers is ended from the ledger alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.farm.ending import interrupt_left, sweep_spool
from comfyfarm.farm.prepare import prepare
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import load_batch, record_batch
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.owner import this_owner
from comfyfarm.outputs.collect import Spool
from comfyfarm.workflow.schema import NodeSchema

Serving = Callable[..., Any]


def dead_owner() -> str:
    """Name of a process that has ended."""
    script = "from comfyfarm.ledger.owner import this_owner; print(this_owner())"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    ).stdout.strip()


async def recorded(project: Any, ledger: Ledger, count: int) -> str:
    request = project.request(project.jobs(count))
    prepared = prepare(request, read_sources(request), NodeSchema.shipped())
    await record_batch(ledger, request, prepared)
    again, plan = await load_batch(ledger, prepared.batch)
    assert again == request
    assert plan.graphs == prepared.graphs
    return prepared.batch


async def test_files_of_jobs_that_are_over_are_swept_and_no_others(project: Any, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    async with await open_ledger(project.ledger_url) as ledger:
        batch = await recorded(project, ledger, 4)
        taken = await ledger.take(batch, this_owner(), 4)
        over, dead_with_files, rendered, running = (claim for _, claim in taken)
        for claim in (over, dead_with_files, rendered):
            attempt = await ledger.begin_attempt(claim, server_url="s", server_identity="", client_id="c")
            await ledger.rendered(claim, attempt.id, (), spool=str(spool.folder(claim.job_id)), seconds=1.0)
        await ledger.succeed(over)
        await ledger.bury(dead_with_files, reason_class="upload", reason="no room")
        stranger = JobId("00000000-0000-4000-8000-000000000001")
        kept = {stranger, *(claim.job_id for claim in (dead_with_files, rendered, running))}
        for job_id in (over.job_id, *kept):
            (spool.folder(job_id) / "deep").mkdir(parents=True)
            (spool.folder(job_id) / "deep" / "a.png").write_bytes(b"x")

        await sweep_spool(ledger, spool)
        await sweep_spool(ledger, Spool(tmp_path / "none yet"))

    assert set(spool.jobs()) == kept


async def test_prompts_of_the_dead_are_interrupted_and_those_of_the_living_are_not(
    project: Any, serving: Serving, graph: Any, until: Any
) -> None:
    served = serving(script="hang*2")
    async with await open_ledger(project.ledger_url) as ledger:
        batch = await recorded(project, ledger, 3)
        ((job, claim),) = await ledger.take(batch, dead_owner(), 1)
        attempt = await ledger.begin_attempt(
            claim, server_url=served.url, server_identity="", client_id="dead"
        )
        async with ComfyClient(served.url) as client:
            await client.submit(graph(), prompt_id=job.id, client_id="dead")
        await until(lambda: bool(served.fake.log[0]["started"]))
        ((living, _),) = await ledger.take(batch, this_owner(), 1)

        ended = await interrupt_left(ledger, batch)

        statuses = {one.id: one.status for one in await ledger.jobs(batch)}
        (closed,) = await ledger.attempts(job.id)
        assert await interrupt_left(ledger, batch) == 0
    assert ended == 2
    assert served.fake.log[0]["end"] == "interrupted"
    assert statuses.pop(living.id) == "running"
    assert set(statuses.values()) == {"cancelled"}
    assert (closed.id, closed.reason) == (attempt.id, "given back")
