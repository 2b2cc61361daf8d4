"""deploy.py: everything once, however often it runs; and never against the user."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from click.testing import CliRunner

from comfyfarm import __version__
from comfyfarm.app import app_dir
from deployments.crash_recovery import FLOWS, SILENCE_S
from deployments.deploy import deploy, main
from deployments.farm_blocks import set_up_blocks

if TYPE_CHECKING:
    from tests.flows.conftest import Deployed

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(180)]

HOST = "test-host"


def state(farm: "Deployed") -> dict[str, Any]:
    """All that a second deploy could double or change; without the times at which it was written."""
    everything = {
        "pools": farm.find("/work_pools/filter", {}),
        "queues": farm.find(f"/work_pools/{HOST}/queues/filter", {}),
        "limits": farm.find("/concurrency_limits/filter", {}),
        "blocks": farm.find("/block_documents/filter", {"include_secrets": True}),
        "deployments": farm.find("/deployments/filter", {}),
        "automations": farm.find("/automations/filter", {}),
    }
    return {kind: timeless(found) for kind, found in everything.items()}


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        varying = {"updated", "last_polled", "status", "block_type", "block_schema"}
        return {key: timeless(item) for key, item in value.items() if key not in varying}
    if isinstance(value, list):
        return sorted((timeless(item) for item in value), key=repr)
    return value


def test_a_second_deploy_changes_nothing(deployed: "Deployed") -> None:
    asyncio.run(deploy(deployed.wanted))  # other tests may have changed things: this mends them
    before = state(deployed)

    lines = asyncio.run(deploy(deployed.wanted))

    assert state(deployed) == before
    assert lines == deployed.lines


def test_the_host_has_its_pool_with_three_queues(deployed: "Deployed") -> None:
    queues = {q["name"]: q["priority"] for q in deployed.find(f"/work_pools/{HOST}/queues/filter", {})}

    assert deployed.get(f"/work_pools/{HOST}")["type"] == "process"
    assert queues == {"high": 1, "normal": 2, "low": 3, "default": 4}


def test_no_tag_of_the_host_is_without_a_limit(deployed: "Deployed") -> None:
    limits = {one["tag"]: one["concurrency_limit"] for one in deployed.find("/concurrency_limits/filter", {})}

    assert limits[f"gpu:{HOST}"] == 2
    assert limits["gpu:rtx4090"] == 2
    assert limits[f"hydrate:{HOST}"] == 4


def test_the_blocks_name_servers_ledger_and_outputs_and_hide_the_ledgers_address(
    deployed: "Deployed",
) -> None:
    blocks = {
        f"{one['block_type']['slug']}/{one['name']}": one["data"]
        for one in deployed.find("/block_documents/filter", {})
    }

    assert tuple(blocks[f"comfy-host/{HOST}"]["servers"]) == deployed.wanted.servers
    assert blocks["output-store/default"]["address"] == deployed.wanted.out
    assert set(blocks["ledger/default"]["address"]) == {"*"}


def test_credentials_go_with_the_place_that_needed_them(deployed: "Deployed") -> None:
    bucket = deployed.wanted.model_copy(update={"out": "s3://bucket/out"})
    r2 = {
        "AWS_ACCESS_KEY_ID": "r2-id",
        "AWS_SECRET_ACCESS_KEY": "r2-secret",
        "AWS_SESSION_TOKEN": "r2-token",
        "AWS_ENDPOINT_URL": "http://r2",
    }
    aws = {"AWS_ACCESS_KEY_ID": "aws-id", "AWS_SECRET_ACCESS_KEY": "aws-secret"}
    try:
        asyncio.run(set_up_blocks(bucket, environ=r2))
        assert credentials(deployed) == ("http://r2", "r2-id", "r2-secret", "r2-token")

        asyncio.run(set_up_blocks(bucket, environ=aws))
        assert credentials(deployed) == (None, "aws-id", "aws-secret", None)

        asyncio.run(set_up_blocks(bucket, environ={}))
        assert credentials(deployed) == (None, "aws-id", "aws-secret", None), "it keeps what it has"
    finally:
        asyncio.run(set_up_blocks(deployed.wanted, environ=aws))
    assert credentials(deployed) == (None, None, None, None)


def credentials(farm: "Deployed") -> tuple[Any, ...]:
    found = farm.find("/block_documents/filter", {"include_secrets": True})
    (data,) = [one["data"] for one in found if one["block_type"]["slug"] == "output-store"]
    return tuple(data.get(key) for key in ("endpoint", "access_key", "secret_key", "session_token"))


def test_a_second_host_takes_the_deployments_over_and_leaves_pool_and_block_of_the_first(
    deployed: "Deployed",
) -> None:
    ids = {name: deployed.deployment(name)["id"] for name in ("render", "nightly")}
    other = deployed.wanted.model_copy(update={"host": "other-host", "pool": "other-host"})
    try:
        asyncio.run(deploy(other))

        for name, known in ids.items():
            taken = deployed.deployment(name)
            assert taken["id"] == known
            assert taken["work_pool_name"] == taken["parameters"]["host"] == "other-host"
        assert deployed.get(f"/work_pools/{HOST}")["name"] == HOST
        blocks = deployed.find("/block_documents/filter", {})
        assert {HOST, "other-host"} <= {one["name"] for one in blocks}
    finally:
        asyncio.run(deploy(deployed.wanted))
    assert deployed.deployment()["work_pool_name"] == HOST


def test_the_closing_lines_are_the_commands_that_start_a_worker(deployed: "Deployed") -> None:
    export, start = deployed.lines[-2:]

    assert export.endswith(f"export PREFECT_API_URL={deployed.control.api_url}")
    assert start.strip() == f"prefect worker start --pool {HOST}"


def test_deployments_carry_version_queue_parameters_and_environment(deployed: "Deployed") -> None:
    render, nightly = deployed.deployment(), deployed.deployment("nightly")

    assert render["version"] == nightly["version"] == __version__
    assert (render["work_queue_name"], nightly["work_queue_name"]) == ("normal", "low")
    assert render["parameters"] == {
        "host": HOST,
        "ledger": "default",
        "out": "output-store/default",
        "mirror": "",
    }
    assert render["entrypoint"] == "flows/render_batch.py:render_batch"
    assert render["pull_steps"] == [
        {"prefect.deployments.steps.set_working_directory": {"directory": str(app_dir())}}
    ]
    env = render["job_variables"]["env"]
    assert env["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert env["PREFECT_CLIENT_MAX_RETRIES"] == "7"
    assert env["COMFYFARM_STATE_DIR"] == str(deployed.wanted.state_dir)


def test_prewarm_is_off_until_it_has_a_lock_that_stays(deployed: "Deployed") -> None:
    prewarm = deployed.get("/deployments/name/hydrate-models/prewarm")
    (schedule,) = prewarm["schedules"]
    place = f"{deployed.control.api_url}/deployments/{prewarm['id']}"

    assert (schedule["schedule"]["cron"], schedule["active"]) == ("0 2 * * *", False)
    assert (prewarm["work_queue_name"], prewarm["version"]) == ("low", __version__)
    assert prewarm["parameters"] == {"host": HOST, "mirror": ""}
    changed = {**prewarm["parameters"], "lock": "/srv/comfyfarm.lock", "spread_s": 600}
    httpx.patch(place, json={"parameters": changed}).raise_for_status()
    try:
        asyncio.run(deploy(deployed.wanted))

        assert deployed.get("/deployments/name/hydrate-models/prewarm")["parameters"] == changed
    finally:
        httpx.patch(place, json={"parameters": prewarm["parameters"]}).raise_for_status()


def test_the_nightly_schedule_is_off_until_wanted_and_stays_as_the_user_set_it(deployed: "Deployed") -> None:
    nightly = deployed.deployment("nightly")
    (schedule,) = nightly["schedules"]
    assert (schedule["schedule"]["cron"], schedule["schedule"]["timezone"]) == ("0 3 * * *", "UTC")
    assert schedule["active"] is False
    place = f"{deployed.control.api_url}/deployments/{nightly['id']}/schedules/{schedule['id']}"
    httpx.patch(place, json={"active": True}).raise_for_status()

    try:
        asyncio.run(deploy(deployed.wanted))

        (kept,) = deployed.deployment("nightly")["schedules"]
        assert kept["active"] is True
        assert kept["id"] == schedule["id"]
    finally:
        httpx.patch(place, json={"active": False}).raise_for_status()


def test_a_workflow_given_to_the_nightly_deployment_stays(deployed: "Deployed") -> None:
    nightly = deployed.deployment("nightly")
    place = f"{deployed.control.api_url}/deployments/{nightly['id']}"
    changed = {**nightly["parameters"], "workflow": "/srv/night.json", "host": "elsewhere"}
    httpx.patch(place, json={"parameters": changed}).raise_for_status()

    try:
        asyncio.run(deploy(deployed.wanted))

        assert deployed.deployment("nightly")["parameters"] == {
            **nightly["parameters"],
            "workflow": "/srv/night.json",
        }
    finally:
        httpx.patch(place, json={"parameters": nightly["parameters"]}).raise_for_status()


def test_the_automations_watch_our_flows_alone_and_restart_deployed_runs_alone(deployed: "Deployed") -> None:
    found = {one["name"]: one for one in deployed.find("/automations/filter", {})}

    zombie = found["comfyfarm: no heartbeat, so the run is dead"]["trigger"]
    restart = found["comfyfarm: start a crashed run again"]["trigger"]
    assert zombie["within"] == SILENCE_S
    assert zombie["match_related"]["prefect.resource.name"] == FLOWS
    roles = [related["prefect.resource.role"] for related in restart["match_related"]]
    assert roles == ["flow", "deployment"]


def test_a_crashed_run_starts_again_unless_it_never_ran(deployed: "Deployed") -> None:
    flow_id = deployed.deployment()["flow_id"]
    body = {"name": "without-a-worker", "flow_id": flow_id}
    nowhere = deployed.post("/deployments/", body).json()["id"]
    unborn, ran = (
        deployed.post(f"/deployments/{nowhere}/create_flow_run", {}).json()["id"] for _ in range(2)
    )
    put(deployed, unborn, "CRASHED")
    put(deployed, ran, "RUNNING")
    put(deployed, ran, "CRASHED")

    deployed.wait_for(lambda: deployed.get(f"/flow_runs/{ran}")["state_name"] == "AwaitingRetry")

    # Its own event came first.
    never = deployed.get(f"/flow_runs/{unborn}")
    assert (never["state_name"], never["run_count"]) == ("Crashed", 0)


def put(farm: "Deployed", run_id: str, state_type: str) -> None:
    body = {"state": {"type": state_type}, "force": True}
    farm.post(f"/flow_runs/{run_id}/set_state", body).raise_for_status()


def test_an_automation_that_was_changed_or_doubled_is_mended(deployed: "Deployed") -> None:
    name = "comfyfarm: start a crashed run again"
    (known,) = [one for one in deployed.find("/automations/filter", {}) if one["name"] == name]
    body = {key: known[key] for key in ("name", "description", "enabled", "trigger", "actions")}
    deployed.post("/automations/", body).raise_for_status()
    other = {**body, "description": "other", "enabled": False}
    httpx.put(f"{deployed.control.api_url}/automations/{known['id']}", json=other).raise_for_status()

    asyncio.run(deploy(deployed.wanted))

    (mended,) = [one for one in deployed.find("/automations/filter", {}) if one["name"] == name]
    assert mended["description"] == known["description"]
    triggers = [{**one["trigger"], "id": None} for one in (mended, known)]
    assert timeless(triggers[0]) == timeless(triggers[1])
    assert mended["enabled"] is False, "what the user switched off stays off"
    httpx.patch(
        f"{deployed.control.api_url}/automations/{mended['id']}", json={"enabled": True}
    ).raise_for_status()


def test_prefects_own_command_takes_the_same_description(deployed: "Deployed", prefect_program: str) -> None:
    before = {name: deployed.deployment(name) for name in ("render", "nightly")}
    command = ["--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml"]

    done = subprocess.run(
        [prefect_program, *command],
        cwd=app_dir(),
        env={**os.environ, **deployed.wanted.variables()},
        capture_output=True,
        text=True,
        timeout=120,
    )
    after = {name: deployed.deployment(name) for name in before}
    asyncio.run(deploy(deployed.wanted))  # Prefect's command leaves the schema open to unknown names

    assert done.returncode == 0, done.stdout + done.stderr
    for name, known in before.items():
        now = after[name]
        for field in ("id", "version", "parameters", "entrypoint", "pull_steps", "tags", "job_variables"):
            assert now[field] == known[field], field
        schemas = [one["parameter_openapi_schema"]["properties"] for one in (now, known)]
        assert schemas[0] == schemas[1]


def test_a_server_that_does_not_answer_is_named_with_exit_3(
    deployed: "Deployed", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path))
    ledger = deployed.wanted.ledger.get_secret_value()

    done = CliRunner().invoke(
        main, ["--server", "http://127.0.0.1:9", "--ledger", ledger, "--out", str(tmp_path), "--host", "gone"]
    )

    assert done.exit_code == 3
    assert "http://127.0.0.1:9 did not answer" in done.output
    assert deployed.post("/work_pools/filter", {"work_pools": {"name": {"any_": ["gone"]}}}).json() == []


def test_another_program_at_a_servers_address_is_named_with_exit_2(
    deployed: "Deployed", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path))
    api = str(deployed.control.api_url)  # Prefect itself is one
    ledger = deployed.wanted.ledger.get_secret_value()

    done = CliRunner().invoke(
        main, ["--server", api, "--ledger", ledger, "--out", str(tmp_path), "--host", "gone"]
    )

    assert done.exit_code == 2
    assert f"{api} answered what ComfyUI would not: GET" in done.output
    assert "answered 404" in done.output
