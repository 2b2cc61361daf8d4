"""Runs the flow `render-batch` in one child process and hands signals on to it."""

import asyncio
import json
import os
import signal
import sys

from comfyfarm.app import app_dir
from comfyfarm.farm.ledgers import Backends
from comfyfarm.farm.request import RenderRequest
from comfyfarm.settings import FarmSettings


async def run_flow(request: RenderRequest, backends: Backends, settings: FarmSettings) -> int:
    """The child's exit code: 0 when the flow ran to its end, whatever became of the jobs.

    The child is in our process group, its words go to stderr, its parameters come by stdin:
    nothing of them can be read in a list of processes.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "flows.render_batch",
        cwd=app_dir(),
        env={**os.environ, **_environment(backends, settings)},
        stdin=asyncio.subprocess.PIPE,
        stdout=sys.stderr.fileno(),
        # The control server stays up as long as the child needs it, also when we are killed.
        pass_fds=() if backends.users_fd is None else (backends.users_fd,),
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _forward, child, number)
    try:
        parameters = request.model_dump(mode="json", exclude={"deadlines", "retries"})
        await child.communicate(json.dumps(parameters).encode())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return child.returncode if child.returncode in {0, 1, 2} else 3


def _forward(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if child.returncode is None:
        child.send_signal(number)


def _environment(backends: Backends, settings: FarmSettings) -> dict[str, str]:
    own = {} if backends.ui_url is None else {"PREFECT_HOME": str(settings.state_dir / "prefect")}
    return {
        **own,
        "PREFECT_API_URL": str(backends.prefect_api_url),
        "COMFYFARM_LEDGER": backends.ledger_url.get_secret_value(),
        "COMFYFARM_STATE_DIR": str(settings.state_dir),
        "COMFYFARM_CACHE_DIR": str(settings.cache_dir),
        # The core's loggers show in the dashboard with the run's and task's ids.
        "PREFECT_LOGGING_EXTRA_LOGGERS": "comfyfarm",
        "PREFECT_CLIENT_MAX_RETRIES": "7",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
