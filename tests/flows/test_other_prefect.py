"""`comfyfarm render` against a Prefect server that is not ours, with Prefect's own settings."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from comfyfarm.clock import SystemClock, pause
from comfyfarm.control.prefect_server import api_url, free_port, prefect_command
from comfyfarm.control.state import ControlStatus
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(180)]

PROGRAM = str(Path(sys.executable).with_name("comfyfarm"))
WORKFLOW = Path(__file__).resolve().parents[2] / "infra" / "demo_data" / "model_free.json"


def kept_environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "COMFYFARM_"))}


@pytest.fixture(scope="module")
def other_api(prefect_api: ControlStatus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server as `prefect server start` makes it, on the database that is there already."""
    folder = tmp_path_factory.mktemp("other")
    port = free_port(folder / "port")
    own = {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": prefect_api.ledger_url.replace(
            "postgresql://", "postgresql+asyncpg://"
        ).replace("/comfyfarm?", "/prefect?"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_UI_STATIC_DIRECTORY": str(folder / "ui"),
        "DO_NOT_TRACK": "1",
    }
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*prefect_command(port), "--no-services"],
            env={**kept_environment(), **own},
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(api_url(port), server, folder / "log")
        yield api_url(port)
    finally:
        server.terminate()
        server.wait(30)


def wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = SystemClock().monotonic() + 90
    while True:
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert server.poll() is None, log.read_text()[-2000:]
        assert SystemClock().monotonic() < end, log.read_text()[-2000:]
        pause(0.2)


def render(folder: Path, api: str, server: str) -> "subprocess.CompletedProcess[str]":
    own = {
        "PREFECT_API_URL": api,
        "PREFECT_HOME": str(folder / "home"),
        "COMFYFARM_STATE_DIR": str(folder / "state"),
        "COMFYFARM_LEDGER": f"sqlite:///{folder / 'ledger.db'}",
    }
    return subprocess.run(
        [PROGRAM, "render", str(WORKFLOW), "--server", server, "--out", str(folder / "out"), "--json"],
        env={**kept_environment(), **own},
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_render_warns_once_of_each_setting_that_a_farm_needs_otherwise(
    other_api: str, tmp_path: Path
) -> None:
    with serve(FakeComfy().app) as url:
        done = render(tmp_path, other_api, url)

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["status"] == "succeeded"
    for warning in (
        "GPU slots leak when it restarts: set PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=",
        "a freed GPU idles up to 10 s: set PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS=0.2",
        "flow runs are kept for ever: set PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=true",
        "cannot be seen from here: whether it runs on PostgreSQL",
    ):
        assert done.stderr.count(f"WARNING the Prefect server: {warning}") == 1, done.stderr[-3000:]


def test_a_prefect_server_that_does_not_answer_is_exit_3(tmp_path: Path) -> None:
    with serve(FakeComfy().app) as url:
        done = render(tmp_path, "http://127.0.0.1:1/api", url)

    assert done.returncode == 3, done.stderr[-3000:]
    assert "comfyfarm: the Prefect server http://127.0.0.1:1/api/ does not answer" in done.stderr
    assert "Traceback" not in done.stderr
