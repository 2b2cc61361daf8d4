"""What an observation means for the job. Pure: the table of docs/architecture.md."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from comfyfarm.comfy.wire import HistoryEntry, SubmitAnswer
from comfyfarm.run.outcome import SUCCEEDED, Outcome, Reason, Verdict

_OOM_TYPES = ("OutOfMemoryError", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "MemoryError")
_OOM_WORDS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "allocation on device",
    "std::bad_alloc",
)
_EVIDENCE_LIMIT = 64 * 1024  # characters; a node once raised an error of 2 MB


def of_submission(answer: SubmitAnswer) -> Outcome | None:
    """What the answer to a submission means; None when the whole graph was accepted."""
    if answer.is_accepted:
        return None
    if answer.status == 200 and answer.node_errors:
        return _permanent(
            Reason.INVALID_WORKFLOW, f"accepted only in part: {_first_node_error(answer)}", answer.text
        )
    if answer.status == 400 and (answer.error or answer.node_errors):
        return _permanent(Reason.INVALID_WORKFLOW, _refusal(answer), answer.text)
    if 400 <= answer.status < 500 and answer.status not in {408, 425, 429}:
        return _permanent(Reason.INVALID_WORKFLOW, f"the server refused it: {answer.status}", answer.text)
    return Outcome(
        verdict=Verdict.TRANSIENT,
        reason=Reason.SERVER,
        message=f"POST /prompt answered {answer.status}",
        evidence=_cut(answer.text),
        retry_after_s=answer.retry_after_s,
    )


def of_history(entry: HistoryEntry, *, expected: Iterable[str]) -> Outcome:
    """How a run ended. Success needs `execution_success` and an output of every expected node.

    `expected`: the nodes whose output must be there, such as those that save files.
    """
    error = entry.message("execution_error")
    if error is not None and not entry.succeeded:
        return of_node_error(error)
    if entry.message("execution_interrupted") is not None:
        return transient(Reason.INTERRUPTED, "interrupted on the server, not by us")
    needed = tuple(expected)
    missing = [node for node in needed if not entry.outputs.get(node)]
    # Old servers keep no status: there, every expected output is all that there is to go by.
    if not entry.succeeded and (entry.has_status or not needed or missing):
        said = f"status {entry.status_str!r}" if entry.has_status else "no status at all"
        return transient(Reason.SERVER, f"the history knows neither success nor error: {said}")
    if missing:
        return transient(Reason.SERVER, f"ended in success without an output of node {', '.join(missing)}")
    return SUCCEEDED


def of_node_error(error: Mapping[str, Any]) -> Outcome:
    """An `execution_error`: out of memory may pass, anything else is the job's own fault."""
    kind, text = str(error.get("exception_type") or ""), str(error.get("exception_message") or "")
    first = next((line for line in text.splitlines() if line.strip()), "no message").strip()
    node = f"node {error.get('node_id')} {error.get('node_type')}"
    message = _one_line(f"{node}: {kind}: {first}")
    evidence = _cut(json.dumps(error, indent=1, default=str))
    if is_out_of_memory(kind, text):
        return Outcome(verdict=Verdict.TRANSIENT, reason=Reason.OOM, message=message, evidence=evidence)
    return _permanent(Reason.NODE_FAILED, message, evidence)


def is_out_of_memory(exception_type: str, message: str) -> bool:
    """By type or by text: on the CPU it is a plain RuntimeError."""
    words = message.lower()
    return exception_type.endswith(_OOM_TYPES) or any(said in words for said in _OOM_WORDS)


def transient(reason: Reason, message: str, *, evidence: str = "") -> Outcome:
    """Something around the job was at fault."""
    return Outcome(
        verdict=Verdict.TRANSIENT, reason=reason, message=_one_line(message), evidence=_cut(evidence)
    )


def refused(why: str) -> Outcome:
    """Not sent at all, since it would hurt the server or could never run."""
    return _permanent(Reason.INVALID_WORKFLOW, f"not sent: {why}", "")


def with_evidence(outcome: Outcome, more: str) -> Outcome:
    """The outcome with what else was seen, behind what it has already."""
    whole = "\n\n".join(part for part in (outcome.evidence, more) if part)
    return outcome.model_copy(update={"evidence": _cut(whole)})


def _permanent(reason: Reason, message: str, evidence: str) -> Outcome:
    return Outcome(
        verdict=Verdict.PERMANENT, reason=reason, message=_one_line(message), evidence=_cut(evidence)
    )


def _refusal(answer: SubmitAnswer) -> str:
    if answer.node_errors:
        return _first_node_error(answer)
    error = answer.error or {}
    details = f" ({error['details']})" if error.get("details") else ""
    return f"{error.get('type')}: {error.get('message')}{details}"


def _first_node_error(answer: SubmitAnswer) -> str:
    for node, raw in answer.node_errors.items():
        found = raw if isinstance(raw, dict) else {}
        errors = found.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else {}
        if isinstance(first, dict):
            what = f"{first.get('message')}: {first.get('details')}"
            more = f" (and {len(answer.node_errors) - 1} more nodes)" if len(answer.node_errors) > 1 else ""
            return f"node {node} {found.get('class_type')}: {what}{more}"
    return "no reason given"


def _one_line(text: str) -> str:
    return _storable(" ".join(text[:10_000].split())[:500])


def _cut(text: str) -> str:
    return _storable(text if len(text) <= _EVIDENCE_LIMIT else text[:_EVIDENCE_LIMIT] + "\n[cut]")


def _storable(text: str) -> str:
    """Without what a database refuses: PostgreSQL takes no NUL, and neither one half of a surrogate pair."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
