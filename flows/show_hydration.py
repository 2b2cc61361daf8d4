"""What Prefect shows of model files that come: their progress, a table at the end, and events.

Nothing depends on it: where Prefect's API fails, that is logged, and the files come all the same.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.events import emit_event

from comfyfarm.clock import Clock, SystemClock
from comfyfarm.farm.hydration import ByteTally, ModelRow
from comfyfarm.workflow.shown import counted
from flows.show_results import artifact_key

logger = logging.getLogger("comfyfarm.flows.show_hydration")

HYDRATED = "comfyfarm.model.hydrated"
QUARANTINED = "comfyfarm.model.quarantined"
FAILED = "comfyfarm.hydration.failed"

_EACH_S = 2.0
_ROWS = 500  # an artifact lies in Prefect's database


@asynccontextmanager
async def shown_progress(
    host: str, total_bytes: int, *, clock: Clock | None = None
) -> AsyncIterator[Callable[[int], None]]:
    """Show how many bytes have come, every 2 s; the value takes so many more, or fewer. Of none, nothing."""
    clock = clock or SystemClock()
    tally = ByteTally(max(1, total_bytes), clock=clock)
    if not total_bytes:
        yield tally.add
        return
    made: list[UUID] = []
    keeper = asyncio.create_task(_keep_up(host, tally, made, clock))
    try:
        yield tally.add
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
    await _show(host, tally, made)


async def _keep_up(host: str, tally: ByteTally, made: list[UUID], clock: Clock) -> None:
    shown = -1
    while True:
        if tally.done != shown:
            shown = tally.done
            await _show(host, tally, made)
        await clock.sleep(_EACH_S)


async def _show(host: str, tally: ByteTally, made: list[UUID]) -> None:
    """Make the artifact, or update the one that is made."""
    text = f"Model files to `{host}`: {tally.text()}"
    try:
        if made:
            await aupdate_progress_artifact(made[0], tally.percent, description=text)
        else:
            key = f"hydrating-{artifact_key(host)}"
            made.append(await acreate_progress_artifact(tally.percent, key=key, description=text))
    except Exception as exc:  # noqa: BLE001 - whatever Prefect's API says, the files come
        logger.warning("the progress of model files does not show in Prefect: %s", exc)


async def show_hydration(host: str, rows: Sequence[ModelRow]) -> None:
    """Make the table of a host's files, or a new version of it."""
    fetched = sum(row.fetched for row in rows)
    failed = sum(bool(row.error) for row in rows)
    words = [f"{counted(len(rows), 'model file')} on `{host}`", f"{fetched} fetched"]
    words += [f"{failed} failed"] if failed else []
    words += [f"the first {_ROWS} shown"] if len(rows) > _ROWS else []
    try:
        await acreate_table_artifact(
            key=f"hydration-{artifact_key(host)}",
            table=[row.cells() for row in rows[:_ROWS]],
            description=", ".join(words),
        )
    except Exception as exc:  # noqa: BLE001 - as above
        logger.warning("the table of model files does not show in Prefect: %s", exc)


def tell_hydrated(host: str, row: ModelRow) -> None:
    """Emit that a file has come."""
    _emit(
        HYDRATED,
        f"comfyfarm.model.{row.sha256}",
        row.title,
        host,
        {
            "host": host,
            "file": row.title,
            "sha256": row.sha256,
            "bytes": row.size,
            "seconds": row.seconds,
            "source": row.source,
        },
    )


def tell_quarantined(host: str, title: str, sha256: str) -> None:
    """Emit that a file in the cache was not what its name says, and was taken away."""
    payload = {"host": host, "file": title, "sha256": sha256}
    _emit(QUARANTINED, f"comfyfarm.model.{sha256}", title, host, payload)


def tell_failed(host: str, rows: Sequence[ModelRow]) -> None:
    """Emit that files did not come, all of them named."""
    files = [{"file": row.title, "sha256": row.sha256, "error": row.error} for row in rows]
    _emit(FAILED, f"comfyfarm.host.{host}", host, host, {"host": host, "files": files})


def _emit(event: str, resource_id: str, name: str, host: str, payload: dict[str, Any]) -> None:
    try:
        emit_event(
            event,
            resource={
                "prefect.resource.id": resource_id,
                "prefect.resource.name": name,
                "comfyfarm.host": host,
            },
            payload=payload,
        )
    except Exception as exc:  # noqa: BLE001 - as above
        logger.warning("the event %s does not show in Prefect: %s", event, exc)
