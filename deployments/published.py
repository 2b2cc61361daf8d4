"""The deployments themselves: made, or brought to what `prefect.yaml` says."""

import importlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound
from prefect.flows import Flow

from deployments.description import Described, Description, ScheduleUse


async def publish(client: PrefectClient, description: Description) -> dict[str, UUID]:
    """Make or update each deployment; their ids stay. The names are `flow/deployment`.

    A schedule is made once, and is the user's from then on: neither switched off nor moved by a redeploy.
    So are the parameters that the description leaves alone, such as the workflow of `nightly`.
    """
    made: dict[str, UUID] = {}
    for described in description.deployments:
        flow = load(described.entrypoint)
        name = f"{flow.name}/{described.name}"
        fields = _fields(described, flow, description.pull)
        made[name] = await _publish_one(client, name, flow, fields)
        await _schedule(client, made[name], described.schedules)
    return made


def load(entrypoint: str) -> Flow[..., Any]:
    """The flow of a path entrypoint such as `flows/render_batch.py:render_batch`."""
    path, _, name = entrypoint.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    flow: Flow[..., Any] = getattr(module, name)
    return flow


def _fields(
    described: Described, flow: Flow[..., Any], pull: tuple[Mapping[str, Any], ...]
) -> dict[str, Any]:
    return {
        "version": described.version,
        "description": described.description,
        "tags": list(described.tags),
        "parameters": dict(described.parameters),
        # Closed: a misspelt name would be taken, and the run would die before any code of ours.
        "parameter_openapi_schema": {
            **flow.parameters.model_dump_for_openapi(),
            "additionalProperties": False,
        },
        "enforce_parameter_schema": described.enforce_parameter_schema,
        "entrypoint": described.entrypoint,
        "pull_steps": [dict(step) for step in pull],
        "work_pool_name": described.work_pool.name,
        "work_queue_name": described.work_pool.work_queue_name,
        "job_variables": dict(described.work_pool.job_variables),
    }


async def _publish_one(
    client: PrefectClient, name: str, flow: Flow[..., Any], fields: dict[str, Any]
) -> UUID:
    try:
        known = await client.read_deployment_by_name(name)
    except ObjectNotFound:
        flow_id = await client.create_flow(flow)
        return await client.create_deployment(flow_id, name.partition("/")[2], **fields)
    kept = {
        key: value
        for key, value in known.parameters.items()
        if key in fields["parameter_openapi_schema"]["properties"]
    }
    fields = {**fields, "parameters": {**kept, **fields["parameters"]}}
    # Not by creating it again: that would replace its schedules.
    await client.update_deployment(known.id, DeploymentUpdate(**fields))
    return known.id


async def _schedule(client: PrefectClient, deployment: UUID, schedules: tuple[ScheduleUse, ...]) -> None:
    known = {schedule.slug for schedule in await client.read_deployment_schedules(deployment)}
    missing = [
        DeploymentScheduleCreate(
            schedule=CronSchedule(cron=schedule.cron, timezone=schedule.timezone),
            active=schedule.active,
            slug=schedule.slug,
        )
        for schedule in schedules
        if schedule.slug not in known
    ]
    if missing:
        await client.create_deployment_schedules(deployment, missing)
