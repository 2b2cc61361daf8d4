"""What a farm needs of a Prefect server that is not ours, and whether it has it."""

from collections.abc import Mapping
from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.exceptions import PrefectHTTPStatusError

from comfyfarm.control.state import control_status
from comfyfarm.settings import FarmSettings

_SLOWEST_WAIT_S = 2.0

UNSEEN = (
    "cannot be seen from here: whether it runs on PostgreSQL (SQLite answers 503 under a handful of "
    "limited tasks; PREFECT_SERVER_DATABASE_CONNECTION_URL), and whether websockets pass its proxy "
    "(without them no task runs are recorded)"
)
"""Settings that the API hides."""


def is_ours(api_url: str, settings: FarmSettings) -> bool:
    """Whether the API is the control server's: that one has the right settings."""
    control = control_status(settings.state_dir)
    return control is not None and control.api_url == api_url.rstrip("/")


async def warn_of_settings(client: PrefectClient) -> tuple[str, ...]:
    """What is missing, one line each, then what cannot be seen."""
    try:
        answer = await client.request("GET", "/admin/settings")
    except PrefectHTTPStatusError as exc:
        return (f"its settings cannot be read ({exc.response.status_code})", UNSEEN)
    return (*missing(answer.json()), UNSEEN)


def missing(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings that a farm needs otherwise, each with the line that sets it."""
    found = []
    storage = str(_get(settings, "server.concurrency.lease_storage"))
    if storage.endswith(".memory"):
        found.append(
            "GPU slots leak when it restarts: set PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE="
            "prefect.server.concurrency.lease_storage.filesystem"
        )
    wait = _get(settings, "server.tasks.tag_concurrency_slot_wait_seconds")
    if isinstance(wait, int | float) and wait > _SLOWEST_WAIT_S:
        found.append(
            f"a freed GPU idles up to {wait:g} s: set "
            "PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS=0.2"
        )
    if "sqlite" in str(_get(settings, "server.database.driver")):
        found.append(
            "it runs on SQLite, which answers 503 under load: set PREFECT_SERVER_DATABASE_CONNECTION_URL"
        )
    if _get(settings, "server.services.task_run_recorder.batch_size") == 1:
        found.append(
            "task runs are recorded one by one: set PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE=50"
        )
    vacuum = _get(settings, "server.services.db_vacuum.enabled")
    if vacuum is not True and "flow_runs" not in str(vacuum):
        found.append("flow runs are kept for ever: set PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED=true")
    return tuple(found)


def _get(settings: Any, path: str) -> Any:
    for name in path.split("."):
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings
