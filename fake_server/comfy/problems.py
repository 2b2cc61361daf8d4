"""The errors of a refused prompt, in the real server's words and shapes.

Source: [rec: validation_*] of ComfyUI 0.27.
"""

from collections.abc import Mapping
from typing import Any

from fake_server.comfy.schema import InputSpec, choices, is_combo

Problem = dict[str, Any]
_LIST_LIMIT = 20


def problem(kind: str, message: str, details: str, extra: Mapping[str, Any] | None = None) -> Problem:
    """One error, as all of ComfyUI's answers spell it."""
    return {"type": kind, "message": message, "details": details, "extra_info": dict(extra or {})}


def custom_refusal(name: str, verdict: str | bool) -> Problem:
    """What a node's own check said of an input: False, or why."""
    details = name if verdict is False else f"{name} - {verdict}"
    text = "Custom validation failed for node"
    return problem("custom_validation_failed", text, details, {"input_name": name})


def out_of_range(name: str, value: Any, options: Mapping[str, Any], extra: Problem) -> Problem | None:
    """A number below `min` or above `max`; None when it is neither."""
    if "min" in options and value < options["min"]:
        text = f"Value {value} smaller than min of {options['min']}"
        return problem("value_smaller_than_min", text, name, extra)
    if "max" in options and value > options["max"]:
        text = f"Value {value} bigger than max of {options['max']}"
        return problem("value_bigger_than_max", text, name, extra)
    return None


def not_listed(name: str, value: Any, spec: InputSpec, extra: Problem) -> Problem | None:
    """A value that a combo does not offer; None when it does. Long lists are left out."""
    kind, options = spec
    if not is_combo(kind):
        return None
    listed = choices(kind, options)
    values = value if options.get("multiselect") and isinstance(value, list) else [value]
    unknown = [each for each in values if each not in listed]
    if not unknown:
        return None
    shown = str(listed)
    if len(listed) > _LIST_LIMIT:
        shown, extra = f"(list of length {len(listed)})", extra | {"input_config": None}
    details = f"{name}: {', '.join(map(repr, unknown))} not in {shown}"
    return problem("value_not_in_list", "Value not in list", details, extra)


def missing_type(message: str, node_id: str, *, class_type: str | None, title: str | None) -> Problem:
    """A node without a class, or of a class that is not installed."""
    extra = {"node_id": node_id, "class_type": class_type, "node_title": title}
    return problem("missing_node_type", message, f"Node ID '#{node_id}'", extra)


def scripted_refusal(graph: dict[str, Any], node_id: str) -> tuple[Problem, dict[str, Any]]:
    """The error and the `node_errors` of a refusal that the script asks for."""
    reason = problem(
        "required_input_missing", "Required input is missing", "scripted", {"input_name": "scripted"}
    )
    entry = {"errors": [reason], "dependent_outputs": [node_id], "class_type": graph[node_id]["class_type"]}
    details = f"{reason['message']}: {reason['details']}"
    kind = "prompt_outputs_failed_validation"
    return problem(kind, "Prompt outputs failed validation", details), {node_id: entry}
