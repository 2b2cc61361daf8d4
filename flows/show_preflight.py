"""What preflight found, in the dashboard: also when it refuses the batch."""

import logging
from collections.abc import Sequence

from prefect.artifacts import acreate_markdown_artifact

from comfyfarm.farm.servers import Server
from comfyfarm.farm.sources import Sources
from comfyfarm.workflow.markdown import to_markdown
from comfyfarm.workflow.preflight import preflight as look
from flows.show_results import artifact_key

logger = logging.getLogger("comfyfarm.flows.show_preflight")

_FILES = 20  # of a batch; the graphs of a sweep are alike


async def show_preflight(batch: str, sources: Sources, servers: Sequence[Server]) -> None:
    """Make the artifact, or a new version of it. Nothing depends on it: a failure is only logged."""
    schema = servers[0].node_schema
    reports = [
        look(data, name=name, schema=schema) for name, data in list(sources.workflows.items())[:_FILES]
    ]
    errors = sum(report.has_errors for report in reports)
    told = f"{len(sources.workflows)} workflow files" + (f", {errors} with errors" if errors else "")
    try:
        await acreate_markdown_artifact(
            key=f"preflight-{artifact_key(batch)}", markdown=to_markdown(reports), description=told
        )
    except Exception as exc:  # noqa: BLE001 - whatever Prefect's API says, the batch goes on
        logger.warning("the report of preflight does not show in Prefect: %s", exc)
