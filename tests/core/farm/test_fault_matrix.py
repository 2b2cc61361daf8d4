"""Every fault of the fake server against the whole road: one job, two servers, one set of outputs."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.run.deadlines import Deadlines
from comfyfarm.run.retry import RetryPolicy
from fake_server.comfy.script import Script

Serving = Callable[..., Any]

HASTY = Deadlines(submit_s=1.5, execution_s=2, no_progress_s=60, collect_s=5, cancel_s=1, wedged_s=1)


def executions(project: Any) -> int:
    """Prompts that any server began to run."""
    return sum(1 for one in project.servers for prompt in one.fake.log if prompt["started"])


@pytest.mark.parametrize(
    ("fault", "most"),
    [
        # Nothing was executed: it is sent again. Executed already: it is found, and not sent again.
        ("500", 1),
        ("503", 1),
        ("429", 1),
        ("close", 1),
        ("accept-close", 1),
        ("no-answer", 1),
        ("garbage", 1),
        ("truncated", 1),
        ("rst-body", 1),
        ("other-id", 2),
        # A run that was destroyed is run again.
        ("oom", 2),
        ("hang", 2),
        ("exit-before", 1),
        ("exit-accepted", 2),
        ("exit-node", 2),
        ("exit-success", 2),
        ("restart", 2),
        ("worker-stuck", 2),
        ("worker-dead", 1),
        ("hang+deaf", 2),
        # The socket is only a hint.
        ("drop", 1),
        ("mute-sockets", 1),
        ("duplicate", 1),
        ("reorder", 1),
        ("foreign", 1),
        ("intermediate", 1),
        ("forget-client", 1),
        ("freeze-sender", 1),
        # Files.
        ("view-404", 2),
        ("view-short", 2),
        ("view-long", 2),
        ("view-rst", 2),
        ("name-spaces", 1),
        ("name-unicode", 1),
        ("name-dotdot", 2),
        ("name-absolute", 2),
        ("name-long", 2),
        # What is read afterwards.
        ("no-status", 1),
        ("no-history", 2),
        ("history-500:2", 1),
        ("jobs-500", 1),
        ("queue-500:1", 1),
    ],
)
async def test_one_fault_costs_at_most_one_execution(
    project: Any, serving: Serving, fault: str, most: int
) -> None:
    job = "0b7e6f0a-6c0e-4a55-9a0e-2f7f6f0e1d11"
    for _ in range(2):
        serving(prompt_seconds=0.1)
    file = project.jobs(1, ids=[job])
    once = Script({"by_id": {job: fault}})  # shared: whichever server gets the job first goes wrong
    for one in project.servers:
        one.fake._set_script(once)

    (row,) = await project.render(project.request(file, deadlines=HASTY))

    assert row.status == "succeeded", row.reason
    assert executions(project) <= most
    assert len(row.files) == 1
    assert len(project.files()) == 2
    told = json.loads((project.out / job / "provenance.json").read_text())
    assert row.files[0].sha256 in json.dumps(told)


@pytest.mark.parametrize("fault", ["hang+deaf", "worker-dead"])
async def test_with_its_only_server_lost_a_run_ends_and_the_job_can_go_on(
    project: Any, serving: Serving, fault: str
) -> None:
    served = serving(prompt_seconds=0.1)
    served.fake.script(fault)
    request = project.request(project.jobs(2), deadlines=HASTY, retries=RetryPolicy(base_s=2.0))
    async with asyncio.timeout(30):
        rows = await project.render(request)

    assert {row.status for row in rows} == {"pending"}
