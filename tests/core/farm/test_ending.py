"""What a dead process left on servers is ended from the ledger alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.farm.ending import interrupt_left
from comfyfarm.farm.prepare import prepare, read_sources
from comfyfarm.farm.stage import load_batch, record_batch
from comfyfarm.ledger.ledger import Ledger, open_ledger
from comfyfarm.ledger.owner import this_owner
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
