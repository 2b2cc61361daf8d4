"""One input of a node class, as `/object_info` describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyfarm.workflow.node import Value, freeze

_UPLOADS = ("image_upload", "audio_upload", "video_upload", "file_upload", "model_upload")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What an input takes."""

    name: str
    type: str
    """`INT`, `MODEL`, `COMBO`; a union is `A,B`; anything is `*`."""
    required: bool
    options: tuple[Value, ...] | None
    """What a combo offers; None when it is none."""
    default: Value
    min: float | None
    max: float | None
    multiline: bool
    multiselect: bool
    upload: str | None
    """`image`, `audio`, `video` or `file`, when people upload a file for it."""
    upload_folder: str
    """Where such a file lies on the server: `input`, or `output` for results used again."""

    @property
    def is_dynamic(self) -> bool:
        """Whether its parts are inputs of their own, written `name.part`."""
        return self.type in {"COMFY_AUTOGROW_V3", "COMFY_DYNAMICCOMBO_V3", "COMFY_DYNAMICSLOT_V3"}


def make_spec(name: str, raw: Any, *, required: bool) -> InputSpec:
    """Read one entry of `input.required` or `input.optional`; odd entries take anything."""
    head: Any = raw[0] if _is_list(raw) and raw else "*"
    more: Mapping[str, Any] = raw[1] if _is_list(raw) and len(raw) > 1 and isinstance(raw[1], Mapping) else {}
    return InputSpec(
        name=name,
        type=type_name(head),
        required=required,
        options=_options(head, more),
        default=freeze(more.get("default")),
        min=_number(more.get("min")),
        max=_number(more.get("max")),
        multiline=more.get("multiline") is True,
        multiselect=more.get("multiselect") is True,
        upload=upload_of(raw),
        upload_folder="output" if more.get("image_folder") == "output" else "input",
    )


def type_name(head: Any) -> str:
    """A type as text; a list of options is a `COMBO`, whatever is odd takes anything."""
    if _is_list(head):
        return "COMBO"
    return head if isinstance(head, str) and head else "*"


def upload_of(raw: Any) -> str | None:
    """The kind of file that people upload for this raw input, if they do."""
    if not _is_list(raw) or len(raw) < 2 or not isinstance(raw[1], Mapping):
        return None
    return next((flag.removesuffix("_upload") for flag in _UPLOADS if raw[1].get(flag)), None)


def _options(head: Any, more: Mapping[str, Any]) -> tuple[Value, ...] | None:
    if _is_list(head):
        return tuple(freeze(item) for item in head)
    if head == "COMBO":
        return tuple(freeze(item) for item in _listed(more.get("options")))
    if head == "COMFY_DYNAMICCOMBO_V3":
        options = _listed(more.get("options"))
        return tuple(item["key"] for item in options if isinstance(item, Mapping) and "key" in item)
    return None


def _listed(value: Any) -> Sequence[Any]:
    return value if _is_list(value) else ()


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
