"""`comfyfarm render` as a user calls it: under Prefect, killed, cancelled, called again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(240)]

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
JOBS = 12


def rows_of(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def api_url(environment: dict[str, str]) -> str:
    state = Path(environment["COMFYFARM_STATE_DIR"]) / "control" / "control.json"
    url: str = json.loads(state.read_text())["api_url"]
    return url


def post(url: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(url, json=body, timeout=30)
    answer.raise_for_status()
    return answer.json()


def test_a_batch_is_rendered_and_a_second_call_runs_nothing(farm: Any) -> None:
    farm.jobs(JOBS)

    first = farm.run()
    accepted = len(farm.prompts())
    second = farm.run()

    assert first.returncode == 0, first.stderr[-3000:]
    rows = rows_of(first.stdout)
    assert [row["status"] for row in rows] == ["succeeded"] * JOBS
    assert set(rows[0]) == {"id", "status", "server", "attempts", "seconds", "reason", "files"}
    for row in rows:
        (file,) = row["files"]
        path = farm.folder / "out" / row["id"] / file["path"]
        assert path.stat().st_size == file["size"]
        assert (farm.folder / "out" / row["id"] / "provenance.json").is_file()
    assert accepted == JOBS
    assert "WARNING" not in first.stderr  # the control server has the right settings
    assert rows_of(second.stdout) == rows
    assert len(farm.prompts()) == accepted


@pytest.mark.parametrize("whole_group", [True, False], ids=["command and flow", "command alone"])
def test_a_killed_render_goes_on_without_running_a_prompt_twice(farm: Any, whole_group: bool) -> None:
    farm.jobs(JOBS)
    first = farm.start()
    farm.wait_for_prompts(JOBS // 3, first)
    (os.killpg if whole_group else os.kill)(first.pid, signal.SIGKILL)

    second = farm.run()

    assert second.returncode == 0, second.stderr[-3000:]
    assert [row["status"] for row in rows_of(second.stdout)] == ["succeeded"] * JOBS
    assert farm.twice() == []
    assert len(farm.prompts()) == JOBS
    names = [path.name for path in farm.outputs()]
    assert names.count("provenance.json") == JOBS
    assert len(names) == 2 * JOBS


def test_cancelling_the_flow_run_interrupts_its_prompts(farm: Any) -> None:
    farm.jobs(40)
    render = farm.start("--batch", "to-be-cancelled")
    farm.wait_for_prompts(2, render)
    api = api_url(farm.environment)
    filters = {
        "flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
        "flows": {"name": {"any_": ["render-batch"]}},
    }
    (run,) = [
        one
        for one in post(f"{api}/flow_runs/filter", filters)
        if one["parameters"]["batch"] == "to-be-cancelled"
    ]

    post(f"{api}/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    code = render.wait(60)

    rows = [
        json.loads(line)
        for line in subprocess.run(
            [PROGRAM, "results", "to-be-cancelled", "--json"],
            env=farm.environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
    ]
    assert code == 1
    assert {row["status"] for row in rows} | {"succeeded"} == {"succeeded", "cancelled"}
    farm.wait_until_idle()
    assert len(farm.prompts()) < 40
    assert httpx.get(f"{api}/flow_runs/{run['id']}", timeout=10).json()["state_type"] == "CANCELLED"


def test_an_interrupt_gives_the_jobs_back_and_the_same_call_finishes(farm: Any) -> None:
    farm.jobs(4 * JOBS)  # enough that the signal finds it at work, however busy the machine is
    first = farm.start()
    farm.wait_for_prompts(2, first)

    os.killpg(first.pid, signal.SIGINT)
    code = first.wait(60)
    farm.wait_until_idle()
    after = len(farm.prompts())
    second = farm.run()

    assert code == 3
    assert after < 4 * JOBS
    assert second.returncode == 0, second.stderr[-3000:]
    assert [row["status"] for row in rows_of(second.stdout)] == ["succeeded"] * (4 * JOBS)
    assert len([path for path in farm.outputs() if path.name != "provenance.json"]) == 4 * JOBS


@pytest.mark.parametrize("whole_group", [True, False], ids=["command and flow", "command alone"])
def test_a_first_sigterm_lets_what_runs_end_and_is_no_fault(farm: Any, whole_group: bool) -> None:
    farm.jobs(4 * JOBS)
    first = farm.start()
    farm.wait_for_prompts(2, first)

    (os.killpg if whole_group else os.kill)(first.pid, signal.SIGTERM)
    code = first.wait(60)
    farm.wait_until_idle()
    ends = [prompt["end"] for prompt in farm.prompts()]
    log = (farm.folder / "render.log").read_text()
    second = farm.run()

    assert code == 0, log
    assert "Traceback" not in log
    assert "jobs are open, nothing new is begun" in log
    assert len(ends) < 4 * JOBS
    assert "interrupted" not in ends
    assert [row["status"] for row in rows_of(second.stdout)] == ["succeeded"] * (4 * JOBS)
    assert farm.twice() == []


def test_bad_input_ends_with_its_exit_code_and_names_the_fault(farm: Any) -> None:
    jobs = farm.jobs(1)
    jobs.write_text(json.dumps({"workflow": str(farm.folder / "nowhere.json")}) + "\n")

    done = farm.run()

    assert done.returncode == 1
    assert "nowhere.json" in done.stderr
    assert farm.prompts() == []


def test_two_renders_at_once_share_the_servers(farm: Any) -> None:
    farm.jobs(6)
    begun = time.monotonic()

    first, second = farm.start("--batch", "one"), farm.start("--batch", "two")
    codes = (first.wait(150), second.wait(150))

    assert codes == (0, 0), (farm.folder / "render.log").read_text()[-3000:]
    assert len(farm.prompts()) == 12
    assert farm.twice() == []
    assert time.monotonic() - begun < 150


def test_two_calls_for_one_batch_do_its_work_once(farm: Any) -> None:
    farm.jobs(6)

    first, second = farm.start(), farm.start()
    codes = (first.wait(150), second.wait(150))

    assert codes == (0, 0), (farm.folder / "render.log").read_text()[-3000:]
    assert len(farm.prompts()) == 6
