"""What preflight found, in the dashboard: also when it refuses the batch."""

import asyncio
import logging

from prefect.artifacts import acreate_markdown_artifact

from comfyfarm.farm.reading import reports_on
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.sources import Sources
from comfyfarm.workflow.reports.markdown import to_markdown
from comfyfarm.workflow.schema import NodeSchema
from flows.show_results import artifact_key

logger = logging.getLogger("comfyfarm.flows.show_preflight")


async def show_preflight(request: RenderRequest, sources: Sources, schema: NodeSchema) -> None:
    """Make the artifact, or a new version of it. Nothing depends on it: a failure is only logged."""
    reports = await asyncio.to_thread(reports_on, request, sources, schema)
    errors = sum(report.has_errors for report in reports)
    files = "1 workflow file" if len(sources.workflows) == 1 else f"{len(sources.workflows)} workflow files"
    try:
        await acreate_markdown_artifact(
            key=f"preflight-{artifact_key(request.batch or sources.stem)}",
            markdown=to_markdown(reports),
            description=f"{files}, {errors} with errors" if errors else files,
        )
    except Exception as exc:  # noqa: BLE001 - whatever Prefect's API says, the batch goes on
        logger.warning("the report of preflight does not show in Prefect: %s", exc)
