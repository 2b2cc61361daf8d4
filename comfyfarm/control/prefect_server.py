"""A Prefect server as a child process: its command, its settings, its port and its health.

Nothing of Prefect is imported. Settings are those that a farm needs (measured on Prefect 3.9.1).
"""

import http.client
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from comfyfarm.control.children import Child

HOST = "127.0.0.1"
_HEALTH_TIMEOUT_S = 3.0

SETTINGS: Mapping[str, str] = {
    # Lanes wait by polling at this pace, in seconds; the default of 10 leaves GPUs idle.
    "PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS": "0.2",
    # In memory, the default, slots leak whenever the server restarts.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    # A third less CPU for each task run, recorded within a second. Whole seconds for the recorder:
    # Prefect 3.9.1 cuts the fraction off, and at 0 it loops without a pause (45 % of a core, idle).
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.5",
    # Otherwise flow runs are kept for ever.
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_ENABLED": "true",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}


def prefect_command(port: int) -> list[str]:
    """How the server is started."""
    return [sys.executable, "-P", "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]


def prefect_environ(home: Path, socket_dir: Path, port: int) -> dict[str, str]:
    """Its environment: ours without other Prefect settings, which may name another server."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "PG"))}
    database = f"postgresql+asyncpg://postgres@/prefect?host={quote(str(socket_dir), safe='/')}&port=5432"
    return {
        **kept,
        **SETTINGS,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
        # Else the dashboard would ask whatever server PREFECT_API_URL names.
        "PREFECT_UI_API_URL": api_url(port),
        # Else the dashboard's files are written into site-packages.
        "PREFECT_UI_STATIC_DIRECTORY": str(home / "ui"),
    }


def start_prefect(home: Path, *, socket_dir: Path, port: int, logs: Path, pid_file: Path) -> Child:
    """Start the server; it answers some seconds later (`is_healthy`)."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Child(
        prefect_command(port),
        environ=prefect_environ(home, socket_dir, port),
        cwd=home,
        log=logs / "prefect.log",
        pid_file=pid_file,
    )


def api_url(port: int) -> str:
    """What PREFECT_API_URL is set to."""
    return f"http://{HOST}:{port}/api"


def ui_url(port: int) -> str:
    """The dashboard."""
    return f"http://{HOST}:{port}"


def is_healthy(port: int) -> bool:
    """Whether a server answers there that its API and database work."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/api/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port(remembered: Path) -> int:
    """The port used last time when it is free, else any free one; remembered in a file."""
    try:
        last = int(remembered.read_text(encoding="ascii"))
    except (OSError, ValueError):
        last = 0
    port = _bound(last) or _bound(0)
    remembered.write_text(str(port), encoding="ascii")
    return port


def _bound(port: int) -> int:
    """The port that could be bound (any for 0); 0 when it is taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As uvicorn does: connections that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return 0
        bound: int = probe.getsockname()[1]
        return bound
