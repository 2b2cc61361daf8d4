"""Runs the flow `render-batch` in one child process, hands signals on to it, and hears how far it is."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from comfyfarm.app import app_dir
from comfyfarm.cache.byte_progress import PIPE
from comfyfarm.farm.ledgers import Backends
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.stopping import Stop
from comfyfarm.settings import FarmSettings

OnBytes = Callable[[int, int, list[tuple[str, int, int]]], None]
"""Told of bytes of model files: how many are done, how many there are; and the same of each under way."""


async def run_flow(
    request: RenderRequest,
    backends: Backends,
    settings: FarmSettings,
    *,
    stop: Stop,
    verbose: bool,
    on_bytes: OnBytes,
) -> int:
    """The child's exit code: 0 when the flow ran to its end, whatever became of the jobs.

    The child is in our process group, its words go to stderr, its parameters come by stdin:
    nothing of them can be read in a list of processes.
    """
    async with _progress_pipe(on_bytes) as pipe:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "flows.render_batch",
            *(["--verbose"] if verbose else []),
            cwd=app_dir(),
            env={**os.environ, **_environment(backends, settings), PIPE: str(pipe)},
            stdin=asyncio.subprocess.PIPE,
            stdout=sys.stderr.fileno(),
            # The control server stays up as long as the child needs it, also when we are killed.
            pass_fds=(pipe,) if backends.users_fd is None else (pipe, backends.users_fd),
        )
        return await _wait_for(child, request, stop)


async def _wait_for(child: asyncio.subprocess.Process, request: RenderRequest, stop: Stop) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _forward, child, number, stop)
    try:
        parameters = request.model_dump(mode="json", exclude={"retries", "host"})
        parameters["project"] = request.project.model_dump(mode="json", exclude_none=True)
        parameters["attempts"] = request.retries.attempts
        await child.communicate(json.dumps(parameters).encode())
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    if stop.was_terminated and child.returncode == -signal.SIGTERM:
        return 0  # it had begun nothing yet
    return child.returncode if child.returncode in {0, 1, 2} else 3


@asynccontextmanager
async def _progress_pipe(on_bytes: OnBytes) -> AsyncIterator[int]:
    """A pipe for the child to write to, as `byte_progress.PIPE` says."""
    reading, writing = os.pipe()
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb")
    )

    async def read() -> None:
        while line := await lines.readline():
            told = json.loads(line)
            on_bytes(told["done"], told["total"], told["files"])

    reader = asyncio.create_task(read())
    try:
        yield writing
    finally:
        os.close(writing)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        transport.close()


def _forward(child: asyncio.subprocess.Process, number: signal.Signals, stop: Stop) -> None:
    stop.was_terminated = number is signal.SIGTERM
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
        "COMFYFARM_GRACE_S": f"{settings.grace_s:g}",
        "PREFECT_CLIENT_MAX_RETRIES": "7",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
