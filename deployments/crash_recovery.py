"""Two automations: a run whose heartbeats end is crashed, and a crashed run starts again.

Prefect has no zombie detection without the first, and no limit to the second: the flow itself refuses
to start too often (`flows/attempt_cap.py`).
"""

from datetime import timedelta

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

FLOWS = ["render-batch", "render-shard", "hydrate-models"]
RESTARTED = ["render-batch", "hydrate-models"]
"""A shard starts again with its batch."""
SILENCE_S = 70
"""More than two heartbeats, of the 30 s that `prefect.yaml` sets for each run: Prefect's least."""

_HEARTBEAT = "prefect.flow-run.heartbeat"
_ENDS = {
    f"prefect.flow-run.{state}"
    for state in ("Completed", "Failed", "Cancelled", "Cancelling", "Crashed", "Suspended", "Paused")
}
_RUN = {"prefect.resource.id": ["prefect.flow-run.*"]}
# Ours alone: other flows of this Prefect server beat every 180 s, and would be taken for dead.
_OURS = {"prefect.resource.role": "flow", "prefect.resource.name": FLOWS}
# A run that no deployment made has no worker that could start it again.
_DEPLOYED = {"prefect.resource.role": "deployment", "prefect.resource.id": "prefect.deployment.*"}
# One that never ran is counted by nobody, and would be started for ever.
_HAS_RUN = {**_RUN, "prefect.run-count": "!0"}


def zombie_automation() -> AutomationCore:
    """Crash a run that has been silent for `SILENCE_S` seconds."""
    return AutomationCore(
        name="comfyfarm: no heartbeat, so the run is dead",
        description=f"A run of {', '.join(FLOWS)} whose process died is marked Crashed.",
        trigger=EventTrigger(
            after={_HEARTBEAT},
            expect={_HEARTBEAT, *_ENDS},
            match=ResourceSpecification(_RUN),
            match_related=ResourceSpecification(_OURS),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, name="Crashed", message="no heartbeat: its process died"
            )
        ],
    )


def restart_automation() -> AutomationCore:
    """Schedule a crashed run of a deployment again; the ledger knows what it has done already."""
    return AutomationCore(
        name="comfyfarm: start a crashed run again",
        description="The run goes on where it was. After three starts it refuses; never begun, it stays.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Crashed"},
            match=ResourceSpecification(_HAS_RUN),
            match_related=[
                ResourceSpecification({**_OURS, "prefect.resource.name": RESTARTED}),
                ResourceSpecification(_DEPLOYED),
            ],
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message="started again after a crash",
                force=True,
            )
        ],
    )


async def set_up_automations(client: PrefectClient) -> tuple[str, ...]:
    """Have each automation once, as it is here; one that was switched off stays off."""
    wanted = (zombie_automation(), restart_automation())
    for automation in wanted:
        known = await client.read_automations_by_name(automation.name)
        if not known:
            await client.create_automation(automation)
        elif _differs(known[0], automation):
            kept = automation.model_copy(update={"enabled": known[0].enabled})
            # Validated anew, so that all fields count as set: Prefect's client leaves the others out.
            fields = kept.model_dump(exclude={"owner_resource"})
            await client.update_automation(known[0].id, AutomationCore.model_validate(fields))
        for double in known[1:]:
            await client.delete_automation(double.id)
    return tuple(automation.name for automation in wanted)


def _differs(known: Automation, wanted: AutomationCore) -> bool:
    mine = wanted.model_dump(mode="json", exclude={"enabled"})
    theirs = AutomationCore(**dict(known)).model_dump(mode="json", exclude={"enabled"})
    return _sorted(mine) != _sorted(theirs)


def _sorted(value: object) -> object:
    """Sets come back in any order."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items() if item is not None and key != "id"}
    if isinstance(value, list):
        return sorted((_sorted(item) for item in value), key=repr)
    return value
