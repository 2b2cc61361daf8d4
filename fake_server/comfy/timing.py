"""How a prompt's time is spread over its nodes, and in how many steps a sampler takes it."""

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

_SAMPLER_STEPS = 20
_MAX_STEPS = 200


class Timing(BaseModel):
    """What each node is to take, and which of them the script's faults strike."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    time_s: dict[str, float] = {}
    target: str = ""


def spread(
    seconds: float, pending: list[str], graph: Mapping[str, Any], *, is_output: Callable[[str], bool]
) -> Timing:
    """Spread the time over the samplers, else over all nodes; faults strike a sampler, else an output."""
    weights = {node_id: steps(graph[node_id]["class_type"], graph[node_id]["inputs"]) for node_id in pending}
    samplers = [node_id for node_id in pending if weights[node_id]]
    busy = samplers or pending
    total = sum(weights[node_id] or 1 for node_id in busy)
    outputs = [node_id for node_id in pending if is_output(node_id)]
    return Timing(
        time_s={node_id: seconds * (weights[node_id] or 1) / total for node_id in busy},
        target=next(iter([*samplers, *outputs]), ""),
    )


def steps(class_type: str, inputs: Mapping[str, Any]) -> int:
    """The steps of a sampler; 0 for any other node."""
    bare = class_type.startswith("Sampler") and not class_type.startswith("SamplerCustom")
    if "Sampler" not in class_type or bare:
        return 0  # `SamplerEulerAncestral` and its like only describe one
    count = inputs.get("steps", _SAMPLER_STEPS)
    if isinstance(count, bool) or not isinstance(count, int):
        count = _SAMPLER_STEPS
    return max(1, min(count, _MAX_STEPS))
