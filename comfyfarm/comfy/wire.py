"""What ComfyUI sends, as values. Read leniently: servers of any age, packs with any output.

Source: recorded traffic of ComfyUI 0.27.0; `execution.py`, `server.py` and `comfy_execution/jobs.py` there.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

_LENIENT = ConfigDict(frozen=True, extra="ignore")
_MESSAGE_TEXT_LIMIT = 2000  # characters
_HUGE = 1e300  # JSON knows integers that no float holds


class Phase(StrEnum):
    """Where a prompt is, by the words of `GET /api/jobs/{id}`."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """The server has never heard of it, or has forgotten it."""

    @property
    def is_live(self) -> bool:
        """Whether the server still has work to do for it."""
        return self in {Phase.PENDING, Phase.IN_PROGRESS}

    @property
    def is_over(self) -> bool:
        """Whether it ended, and the history tells how."""
        return self in {Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED}


class PromptState(BaseModel):
    """A prompt's phase, and the number of that run (None where the server does not say)."""

    model_config = _LENIENT

    phase: Phase
    number: float | None = None


class SubmitAnswer(BaseModel):
    """The answer to `POST /prompt`, whatever it was."""

    model_config = _LENIENT

    status: int
    prompt_id: str | None = None
    number: float | None = None
    error: Mapping[str, JsonValue] | None = None
    node_errors: Mapping[str, JsonValue] = {}
    text: str = ""
    """The body, at most 64 KiB of it."""
    retry_after_s: float | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the server queued the whole graph."""
        return self.status == 200 and self.number is not None and not self.node_errors


class Device(BaseModel):
    """One device of `/system_stats`; sizes in bytes."""

    model_config = _LENIENT

    name: str = "cpu"
    type: str = "cpu"
    vram_total: int = 0
    vram_free: int = 0


class SystemStats(BaseModel):
    """What a server says of itself."""

    model_config = _LENIENT

    version: str = "unknown"
    device: Device = Device()


class OutputEntry(BaseModel):
    """One file that a node reported: enough to ask `/view` for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    key: str
    """The key under which the node reported it: `images`, `audio`, `3d`, or anything else."""
    filename: str
    subfolder: str = ""
    type: str = "output"


class TextEntry(BaseModel):
    """One text that a node reported under its output."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    key: str
    text: str


class HistoryEntry(BaseModel):
    """How a run ended, by `GET /history/{id}`."""

    model_config = _LENIENT

    number: float | None = None
    outputs: Mapping[str, Any] = {}
    status_str: str | None = None
    """None on servers that keep no status: then nothing is known of success."""
    messages: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def message(self, kind: str) -> Mapping[str, Any] | None:
        """The last message of that kind, such as `execution_error`."""
        return next((data for name, data in reversed(self.messages) if name == kind), None)

    @property
    def has_status(self) -> bool:
        """Whether the server keeps one: old ones do not."""
        return self.status_str is not None or bool(self.messages)

    @property
    def succeeded(self) -> bool:
        """`execution_success` among the messages; `status_str` alone can be stale."""
        return self.message("execution_success") is not None

    @property
    def seconds(self) -> float | None:
        """From the first message to the last, by the server's own clock."""
        stamps = [data["timestamp"] for _, data in self.messages if finite(data.get("timestamp"))]
        return (max(stamps) - min(stamps)) / 1000 if stamps else None

    def files(self) -> tuple[OutputEntry, ...]:
        """Every file-like output, whatever its key, each once, in the order of the nodes."""
        found = (
            OutputEntry(
                node=node,
                key=key,
                filename=item["filename"],
                subfolder=str(item.get("subfolder") or ""),
                type=str(item.get("type") or "output"),
            )
            for node, key, item in self._items()
            if isinstance(item, dict) and isinstance(item.get("filename"), str) and item["filename"]
        )
        return tuple(dict.fromkeys(found))

    def texts(self) -> tuple[TextEntry, ...]:
        """Texts that nodes reported. A bare string arrives as a list of its characters: joined again."""
        found: dict[tuple[str, str], list[str]] = {}
        for node, key, item in self._items():
            if isinstance(item, str):
                found.setdefault((node, key), []).append(item)
        return tuple(
            TextEntry(node=node, key=key, text=_joined(parts)) for (node, key), parts in found.items()
        )

    def _items(self) -> Iterator[tuple[str, str, Any]]:
        for node, output in self.outputs.items():
            for key, items in output.items() if isinstance(output, dict) else ():
                for item in items if isinstance(items, list) else (items,):
                    yield str(node), str(key), item


def _joined(parts: list[str]) -> str:
    return "".join(parts) if all(len(part) == 1 for part in parts) else "\n".join(parts)


class Message(BaseModel):
    """One text frame of the socket."""

    model_config = _LENIENT

    type: str
    data: Mapping[str, Any] = {}
    text: str = ""
    """The beginning of the frame as it came, 2,000 characters at most: evidence of a failure."""

    @property
    def prompt_id(self) -> str | None:
        """Whose it is; None for `status` and for what old servers leave out."""
        found = self.data.get("prompt_id")
        return found if isinstance(found, str) else None

    @property
    def node(self) -> str | None:
        """The node that it speaks of, where it does."""
        found = self.data.get("node")
        return found if isinstance(found, str) else None

    @property
    def ends_prompt(self) -> bool:
        """`executing` with no node: sent after success, error and interrupt alike."""
        return self.type == "executing" and self.data.get("node") is None


def read_message(frame: str | bytes) -> Message | None:
    """A frame as a message; None for previews, other binary frames and what is no message."""
    if isinstance(frame, bytes):
        return None
    try:
        raw = json.loads(frame)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        return None
    data = raw.get("data")
    return Message(
        type=raw["type"], data=data if isinstance(data, dict) else {}, text=frame[:_MESSAGE_TEXT_LIMIT]
    )


def read_history(raw: Any) -> HistoryEntry:
    """One entry of `/history` as a value."""
    entry = raw if isinstance(raw, dict) else {}
    prompt = entry.get("prompt")
    status = entry.get("status")
    status = status if isinstance(status, dict) else {}
    outputs = entry.get("outputs")
    return HistoryEntry(
        number=finite(prompt[0]) if isinstance(prompt, list) and prompt else None,
        outputs=outputs if isinstance(outputs, dict) else {},
        status_str=status.get("status_str") if isinstance(status.get("status_str"), str) else None,
        messages=tuple(_pairs(status.get("messages"))),
    )


def _pairs(messages: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for item in messages if isinstance(messages, list) else ():
        if isinstance(item, list) and len(item) == 2 and isinstance(item[1], dict):
            yield str(item[0]), item[1]


def finite(value: Any) -> float | None:
    """A JSON number that fits a float; None for all else, NaN included."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_HUGE < value < _HUGE:
        return None
    return float(value)
