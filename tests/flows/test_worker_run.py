"""Runs that a real worker picks up, started from REST and from the command: the whole way to the outputs."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.flows.conftest import Deployed

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

HOST = "test-host"


def graph(color: int) -> dict[str, Any]:
    empty = {"width": 16, "height": 16, "batch_size": 1, "color": color}
    return {
        "1": {"class_type": "EmptyImage", "inputs": empty},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "tiny"}},
    }


@pytest.fixture(scope="module")
def worker(
    deployed: "Deployed", prefect_program: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A stock process worker, started elsewhere than in the checkout."""
    folder = tmp_path_factory.mktemp("worker")
    command = [prefect_program, "worker", "start", "--pool", HOST, "--type", "process"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COMFYFARM_")}
    environ["PREFECT_WORKER_QUERY_SECONDS"] = "1"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()  # on a busy machine a stock worker sometimes does not end by itself
            process.wait(10)


def tasks(farm: "Deployed", run_id: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The ids of the run and its shards, and all their task runs."""
    asked = {"flow_runs": {"parent_flow_run_id": {"any_": [run_id]}}}
    ids = [run_id, *(shard["id"] for shard in farm.find("/flow_runs/filter", asked))]
    return ids, farm.find("/task_runs/filter", {"flow_runs": {"id": {"any_": ids}}, "limit": 200})


@pytest.mark.usefixtures("worker")
def test_a_run_started_by_rest_shows_tasks_retries_logs_and_artifacts(deployed: "Deployed") -> None:
    for fake in deployed.fakes:
        fake.script("oom,ok")

    started = deployed.start(workflow=graph(1))
    assert started.status_code == 201
    run = deployed.wait_for_end(started.json()["id"])

    assert run["state_name"] == "Completed", run["state"]["message"]
    ids = deployed.wait_for(lambda: _all_recorded(deployed, run["id"]))
    _, found = tasks(deployed, run["id"])
    (render,) = [task for task in found if re.fullmatch(r"render-[0-9a-f-]{36}", task["name"])]
    assert render["run_count"] >= 2
    lanes = [task for task in found if task["name"].startswith("lane-")]
    assert {tag for lane in lanes for tag in lane["tags"]} == {f"gpu:{HOST}", "gpu:rtx4090"}
    logs = deployed.find("/logs/filter", {"logs": {"flow_run_id": {"any_": ids}}})
    core = [line for line in logs if line["name"].startswith("comfyfarm.")]
    assert any("succeeded" in line["message"] and line["task_run_id"] for line in core)
    assert any(line["message"].startswith("tried again: oom") for line in logs)
    artifacts = deployed.find("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": ids}}})
    assert {"table", "markdown"} <= {one["type"] for one in artifacts}
    job = render["name"].removeprefix("render-")
    assert [file.suffix for file in (deployed.out / job).iterdir() if file.suffix == ".png"] == [".png"]
    provenance = json.loads((deployed.out / job / "provenance.json").read_text())
    assert len(provenance["files"]) == 1


def _all_recorded(farm: "Deployed", run_id: str) -> list[str] | None:
    """Task runs and logs are recorded a moment after the run's end."""
    ids, found = tasks(farm, run_id)
    kinds = {task["name"].partition("-")[0] for task in found if task["state_type"] == "COMPLETED"}
    logs = farm.find("/logs/filter", {"logs": {"flow_run_id": {"any_": ids}}})
    is_done = {"preflight", "lane", "render", "sync"} <= kinds
    return (
        ids
        if is_done and any("Finished in state Completed('1 job" in log["message"] for log in logs)
        else None
    )


@pytest.mark.usefixtures("worker")
def test_a_run_started_by_the_command_renders_a_file_that_the_worker_can_open(
    deployed: "Deployed", prefect_program: str, tmp_path: Path
) -> None:
    workflow = tmp_path / "tiny.json"
    workflow.write_text(json.dumps(graph(2)))

    done = subprocess.run(
        [prefect_program, "deployment", "run", "render-batch/render", "--param", f'workflow="{workflow}"',
         "--param", 'overrides={"1.color": 3}'],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", done.stdout)
    assert found is not None, done.stdout
    run = deployed.wait_for_end(found[0])
    assert run["state_name"] == "Completed", run["state"]["message"]
    assert run["state"]["message"] == "1 job succeeded"


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("parameters", "block"),
    [({"ledger": "none-such"}, "ledger/none-such"), ({"host": "none-such"}, "comfy-host/none-such")],
)
def test_a_run_whose_block_is_missing_fails_at_once_and_names_it(
    deployed: "Deployed", parameters: dict[str, Any], block: str
) -> None:
    started = deployed.start(workflow=graph(4), **parameters)

    run = deployed.wait_for_end(started.json()["id"])

    assert run["state_name"] == "Failed"
    assert block in run["state"]["message"]
    assert run["total_run_time"] < 3.0  # a second when the machine has nothing else to do
