"""Group `road`: what the whole road costs, on fakes in processes of their own."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figure import Figure
from infra.comfy_servers import Served, fake_comfy

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / "infra" / "demo_data" / "model_free.json"
PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
PROMPT_S = 0.5
JOBS = 20


def figures() -> Iterator[Figure]:
    """All figures of the group."""
    yield _help()
    yield _busy("busy share without Prefect", "--local")
    yield _busy("busy share under Prefect")
    yield _resume()
    yield from _resume_under_prefect()


def _help() -> Figure:
    times = []
    for _ in range(7):
        begun = time.monotonic()
        subprocess.run([PROGRAM, "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.monotonic() - begun)
    value = statistics.median(times)
    return Figure("comfyfarm --help", round(value, 3), "s", "< 0.3", value < 0.3, "the clock, median of 7")


@contextmanager
def _farm() -> Iterator[tuple[Path, list[Served], dict[str, str]]]:
    """A project of 20 jobs, two fakes, and an environment with a state directory of its own."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        lines = [{"workflow": str(WORKFLOW), "set": {"1.color": 1000 + n}} for n in range(JOBS)]
        (folder / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        servers = [
            stack.enter_context(fake_comfy(prompt_seconds=PROMPT_S, log=folder / "fakes.log"))
            for _ in range(2)
        ]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "COMFYFARM_"))
        }
        yield (
            folder,
            servers,
            {
                **environment,
                "COMFYFARM_STATE_DIR": str(folder / "state"),
                "PREFECT_HOME": str(folder / "prefect"),
            },
        )


def _command(folder: Path, servers: list[Served], *options: str) -> list[str]:
    command = [
        PROGRAM,
        "render",
        str(folder / "jobs.jsonl"),
        "--out",
        str(folder / "out"),
        "--json",
        *options,
    ]
    for server in servers:
        command += ["--server", server.url]
    return command


def _log(server: Served) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/fake/log", timeout=10) as answer:  # noqa: S310 - loopback
        found: list[dict[str, Any]] = json.load(answer)
        return found


def _busy(name: str, *options: str) -> Figure:
    with _farm() as (folder, servers, environment):
        command = _command(folder, servers, *options)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        prompts = [prompt for server in servers for prompt in _log(server)]
        begun = min(prompt["started"] for prompt in prompts)
        ended = max(prompt["ended"] for prompt in prompts)
        shares = [
            sum(prompt["ended"] - prompt["started"] for prompt in _log(server)) / (ended - begun)
            for server in servers
        ]
    worst = min(shares)
    against = f"{JOBS} prompts of {PROMPT_S} s on 2 fakes, the less busy one, first start to last end"
    return Figure(name, round(worst, 3), "share", ">= 0.90", worst >= 0.9, against)


def _ended(servers: list[Served]) -> int:
    return sum(1 for server in servers for prompt in _log(server) if prompt["ended"])


def _twice(servers: list[Served]) -> int:
    ids = [prompt["prompt_id"] for server in servers for prompt in _log(server)]
    return len(ids) - len(set(ids))


def _resume() -> Figure:
    """SIGKILL in mid-batch, the same call again: prompts that ran twice, of all that were accepted."""
    with _farm() as (folder, servers, environment):
        command = _command(folder, servers, "--local")
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as first:
            while _ended(servers) < JOBS // 3:
                time.sleep(0.05)
            first.send_signal(signal.SIGKILL)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        twice = _twice(servers)
    against = f"{JOBS} jobs, killed after a third, started again; by the fakes' own logs"
    return Figure("prompts run twice after SIGKILL", twice, "prompts", "== 0", twice == 0, against)


def _resume_under_prefect() -> Iterator[Figure]:
    """SIGKILL of command and flow at once, the same call again: what ran twice, and how soon it goes on."""
    with _farm() as (folder, servers, environment), _control(folder, environment) as api:
        command = _command(folder, servers, "--batch", "killed")
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        ) as first:
            while _ended(servers) < JOBS // 3:
                time.sleep(0.05)
            os.killpg(first.pid, signal.SIGKILL)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        twice, begun = _twice(servers), _last_start(api, "killed")
        later = [prompt["received"] for server in servers for prompt in _log(server)]
        waited_s = min(received for received in later if received > begun) - begun
    name = "under Prefect after SIGKILL of command and flow"
    against = f"{JOBS} jobs, killed after a third, started again; by the fakes' own logs"
    yield Figure(f"prompts run twice {name}", twice, "prompts", "== 0", twice == 0, against)
    against = "from the second flow run's start, by Prefect, to the next prompt that a fake accepts"
    yield Figure(f"goes on {name}", round(waited_s, 2), "s", "< 10", waited_s < 10, against)


@contextmanager
def _control(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """The control server, up for as long as this is open: its Prefect API."""
    call = [PROGRAM, "control"]
    subprocess.run([*call, "start"], check=True, env=environment, stdout=subprocess.DEVNULL)
    try:
        record = json.loads((folder / "state" / "control" / "control.json").read_text())
        yield str(record["api_url"])
    finally:
        subprocess.run([*call, "stop"], check=True, env=environment, stdout=subprocess.DEVNULL)


def _last_start(api: str, batch: str) -> float:
    """Unix time at which Prefect saw the batch's last flow run begin."""
    asked = {"flows": {"name": {"any_": ["render-batch"]}}, "flow_runs": {"name": {"any_": [batch]}}}
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{api}/flow_runs/filter", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - loopback
        starts = [datetime.fromisoformat(run["start_time"]) for run in json.load(answer)]
    return max(starts).timestamp()
