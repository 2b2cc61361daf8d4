"""The views of /api/jobs: one object for each prompt that waits, runs or has ended.

Source: facts of ComfyUI 0.27; [rec: api_jobs, api_jobs_cancel, output_*].
"""

import uuid
from collections.abc import Mapping
from typing import Any

from fake_server.comfy.prompts import Entry, Prompts

STATUSES = ("pending", "in_progress", "completed", "failed", "cancelled")
_END_MESSAGES = ("execution_success", "execution_error", "execution_interrupted")
_SHOWABLE = frozenset({"images", "video", "audio", "3d", "files"})
_STREAMS = ("video/", "audio/")
_MESHES = (".obj", ".fbx", ".gltf", ".glb", ".usdz")


class BadQuery(ValueError):
    """A query parameter that the route refuses, with the text of its answer."""


def all_jobs(prompts: Prompts) -> list[dict[str, Any]]:
    """Every prompt once, pending ones first."""
    waiting = [_queued(entry, "pending") for entry in prompts.pending]
    running = [_queued(entry, "in_progress") for entry in prompts.running.values()]
    ended = [(prompt_id, entry) for prompt_id, entry in prompts.history.items() if "status" in entry]
    return waiting + running + [_ended(prompt_id, entry) for prompt_id, entry in ended]


def one_job(prompts: Prompts, prompt_id: str) -> dict[str, Any] | None:
    """One prompt in full; None when nothing is known of it."""
    for entry in prompts.running.values():
        if entry[1] == prompt_id:
            return _queued(entry, "in_progress")
    for entry in prompts.pending:
        if entry[1] == prompt_id:
            return _queued(entry, "pending")
    known = prompts.history.get(prompt_id)
    if known is None or "status" not in known:
        return None  # servers that kept no status had no such route
    return _ended(prompt_id, known) | {
        "outputs": _normal_outputs(known["outputs"]),
        "execution_status": known["status"],
        "workflow": {"prompt": known["prompt"][2], "extra_data": known["prompt"][3]},
    }


def page(jobs: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """The answer of GET /api/jobs: filtered, sorted, cut.

    Raises:
        BadQuery: a parameter is refused.
    """
    statuses = _statuses(query)
    order, sort_by = _sorting(query)
    limit, offset = _number(query, "limit"), max(0, _number(query, "offset") or 0)
    if limit is not None and limit <= 0:
        raise BadQuery("limit must be a positive integer")
    workflow_id = query.get("workflow_id")
    chosen = [
        job
        for job in jobs
        if job["status"] in statuses and (not workflow_id or job.get("workflow_id") == workflow_id)
    ]
    key = _duration if sort_by == "execution_duration" else _created
    chosen.sort(key=key, reverse=order == "desc")
    end = len(chosen) if limit is None else offset + limit
    pagination = {"offset": offset, "limit": limit, "total": len(chosen), "has_more": end < len(chosen)}
    return {"jobs": chosen[offset:end], "pagination": pagination}


def is_canonical(prompt_id: object) -> bool:
    """Whether an id is a UUID in the one spelling that the server takes: lower case, with hyphens."""
    if not isinstance(prompt_id, str):
        return False
    try:
        return str(uuid.UUID(prompt_id)) == prompt_id
    except ValueError:
        return False


def _statuses(query: Mapping[str, str]) -> tuple[str, ...]:
    if not query.get("status"):
        return STATUSES
    wanted = [word.strip().lower() for word in query["status"].split(",") if word.strip()]
    unknown = [word for word in wanted if word not in STATUSES]
    if unknown:
        raise BadQuery(f"Invalid status value(s): {', '.join(unknown)}. Valid values: {', '.join(STATUSES)}")
    return tuple(wanted)


def _sorting(query: Mapping[str, str]) -> tuple[str, str]:
    sort_by, order = query.get("sort_by", "created_at"), query.get("sort_order", "desc")
    if sort_by not in {"created_at", "execution_duration"}:
        raise BadQuery("sort_by must be 'created_at' or 'execution_duration'")
    if order not in {"asc", "desc"}:
        raise BadQuery("sort_order must be 'asc' or 'desc'")
    return order, sort_by


def _number(query: Mapping[str, str], name: str) -> int | None:
    try:
        return int(query[name]) if name in query else None
    except ValueError as exc:
        raise BadQuery(f"{name} must be an integer") from exc


def _created(job: Mapping[str, Any]) -> float:
    return float(job.get("create_time", 0))


def _duration(job: Mapping[str, Any]) -> float:
    return float(job.get("execution_end_time", 0)) - float(job.get("execution_start_time", 0))


def _queued(entry: Entry, status: str) -> dict[str, Any]:
    job = {"id": entry[1], "status": status, "priority": entry[0], "create_time": entry[3].get("create_time")}
    return job | {"outputs_count": 0} | _workflow_id(entry[3])


def _ended(prompt_id: str, known: Mapping[str, Any]) -> dict[str, Any]:
    number, _, _, extra, _ = known["prompt"]
    messages = dict(known["status"]["messages"])
    job: dict[str, Any] = {"id": prompt_id, "status": _status(known, messages), "priority": number}
    job["create_time"] = extra.get("create_time")
    if "execution_start" in messages:
        job["execution_start_time"] = messages["execution_start"]["timestamp"]
    for kind in _END_MESSAGES:
        if kind in messages:
            job["execution_end_time"] = messages[kind]["timestamp"]
    if "execution_error" in messages:
        job["execution_error"] = messages["execution_error"]
    count, preview = _summary(known["outputs"])
    job["outputs_count"] = count
    if preview is not None:
        job["preview_output"] = preview
    return job | _workflow_id(extra)


def _status(known: Mapping[str, Any], messages: Mapping[str, Any]) -> str:
    if "execution_interrupted" in messages:
        return "cancelled"
    return "completed" if known["status"]["status_str"] == "success" else "failed"


def _workflow_id(extra: Mapping[str, Any]) -> dict[str, Any]:
    # A null here makes the whole listing fail, as recorded: api_jobs_bad_workflow_meta.
    found = extra.get("extra_pnginfo", {}).get("workflow", {}).get("id")
    return {} if found is None else {"workflow_id": found}


def _summary(outputs: Mapping[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """How many files there are, and which to show: an output before a preview or a text."""
    count, best, fallback = 0, None, None
    for node_id, key, item in _items(outputs):
        count += isinstance(item, dict)
        shown = _shown(node_id, key, item)
        if shown is not None and shown.get("type") == "output":
            best = best or shown
        elif shown is not None:
            fallback = fallback or shown
    return count, best or fallback


def _items(outputs: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    return [
        (node_id, key, _normal(item))
        for node_id, ui in outputs.items()
        for key, items in ui.items()
        if key != "animated" and isinstance(items, list)
        for item in items
    ]


def _shown(node_id: str, key: str, item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"content": item, "nodeId": node_id, "mediaType": "text"} if key == "text" else None
    if not isinstance(item, dict):
        return None
    is_stream = str(item.get("format", "")).startswith(_STREAMS)
    if key not in _SHOWABLE and not is_stream and "mediaType" not in item:
        return None
    return {**item, "nodeId": node_id, "mediaType": item.get("mediaType", key)}


def _normal(item: Any) -> Any:
    """An item as the views show it: the bare name of a 3D file becomes an entry."""
    if isinstance(item, str) and item.lower().endswith(_MESHES):
        return {"filename": item, "subfolder": "", "type": "output", "mediaType": "3d"}
    return item


def _normal_outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        node_id: {
            key: [_normal(item) for item in items if item is not None] if isinstance(items, list) else items
            for key, items in ui.items()
        }
        for node_id, ui in outputs.items()
    }
