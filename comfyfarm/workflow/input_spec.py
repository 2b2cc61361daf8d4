"""One input of a node class, as `/object_info` describes it: what it takes, and how the editor shows it.

Inputs of V3 nodes may have parts, which are inputs of their own under dotted names: a dynamic combo
has those of the option that is chosen, an autogrow group has as many as are connected.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

from comfyfarm.workflow.node import Value, freeze

AUTOGROW = "COMFY_AUTOGROW_V3"
DYNAMIC_COMBO = "COMFY_DYNAMICCOMBO_V3"
DYNAMIC_SLOT = "COMFY_DYNAMICSLOT_V3"
MATCH_TYPE = "COMFY_MATCHTYPE_V3"

WIDGET_TYPES = frozenset(
    {"INT", "FLOAT", "STRING", "BOOLEAN", "COMBO", DYNAMIC_COMBO, "MARKDOWN", "TEXTAREA", "COLOR", "COLORS"}
    | {"IMAGECOMPARE", "BOUNDING_BOX", "BOUNDING_BOXES", "CURVE", "RANGE", "PAINTER", "CHART", "GALLERIA"}
    | {"IMAGEUPLOAD", "AUDIOUPLOAD", "AUDIO_UI", "AUDIO_RECORD", "WEBCAM", "LOAD_3D", "LOAD3D", "TREESELECT"}
)
"""Types for which the editor draws a widget, whose value stands in `widgets_values`."""

_DYNAMIC = frozenset({AUTOGROW, DYNAMIC_COMBO, DYNAMIC_SLOT})
_UPLOADS = ("image_upload", "audio_upload", "video_upload", "file_upload", "model_upload")
SEEDS = frozenset({"seed", "noise_seed"})
_MAX_PARTS = 100  # ComfyUI's own limit for a group
_MAX_NESTING = 8  # dynamic inputs inside dynamic inputs; the shipped schema has 2
_NO_PARTS: Mapping[str, "tuple[InputSpec, ...]"] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What an input takes."""

    name: str
    """As in the API graph; that of a part is dotted, `resize_type.longer_size`."""
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
    """`image`, `audio`, `video` or `file`, when people upload a file for it. The editor then adds a button
    widget `upload` behind all inputs of the class (not directly behind this one), and its value, such as
    `image`, stands in `widgets_values` too."""
    upload_folder: str
    """Where such a file lies on the server: `input`, or `output` for results used again."""
    parts: Mapping[str, "tuple[InputSpec, ...]"] = field(default_factory=lambda: _NO_PARTS)
    """The inputs inside this one, under their dotted names. Dynamic combo: by option, in the order in which
    the editor puts them directly behind the combo. Autogrow and dynamic slot: all of them, under ``""``."""
    is_widget: bool = False
    """Whether the editor draws a widget for it, so that it has a place in `widgets_values`. The order of
    that list is the order of the specs in `NodeSchema.expanded`, each followed by its `controls`."""
    controls: int = 0
    """Widgets of the editor behind this one that are no inputs, but stand in `widgets_values`: 1 for an INT
    with `control_after_generate` (`fixed`, `increment`, `decrement`, `randomize`), 2 for such a combo
    (that, and a filter text). By flag, or by the name `seed` or `noise_seed` when no flag is given."""
    force_input: bool = False
    """It has a socket only, never a widget."""
    dynamic_prompts: bool = False
    """The editor chooses one of `{a|b}` and strips comments when it queues."""
    template: str = ""
    """Id of a match type's template: all sockets of the node with one id have to have one type."""
    allowed: str = "*"
    """Types that a match type or a dynamic slot takes, as a union."""
    is_list_type: bool = False
    """Its options stand in place of the type, as older nodes have it: `COMBO` over a link does not fit."""

    @property
    def is_dynamic(self) -> bool:
        """Whether its parts are inputs of their own, written `name.part`."""
        return self.type in _DYNAMIC

    def active_parts(self, value: Any, *, is_given: bool) -> "tuple[InputSpec, ...]":
        """The direct parts for a value of this input; they may have parts themselves.

        A dynamic combo has those of the option that `value` names (none for an option that it does not
        have), a dynamic slot its own once it `is_given`, an autogrow group always all.
        """
        if self.type == AUTOGROW or (self.type == DYNAMIC_SLOT and is_given):
            return self.parts.get("", ())
        if self.type == DYNAMIC_COMBO and isinstance(value, str):
            return self.parts.get(value, ())
        return ()


def make_spec(name: str, raw: Any, *, required: bool, depth: int = 0) -> InputSpec:
    """Read one entry of `input.required` or `input.optional`; odd entries take anything.

    `depth`: how many dynamic inputs this one is inside of.
    """
    head: Any = raw[0] if _is_list(raw) and raw else "*"
    more: Mapping[str, Any] = raw[1] if _is_list(raw) and len(raw) > 1 and isinstance(raw[1], Mapping) else {}
    kind = type_name(head)
    template: Mapping[str, Any] = more["template"] if isinstance(more.get("template"), Mapping) else {}
    return InputSpec(
        name=name,
        type=kind,
        required=required,
        options=_options(head, more),
        default=freeze(more.get("default")),
        min=_number(more.get("min")),
        max=_number(more.get("max")),
        multiline=more.get("multiline") is True,
        multiselect=more.get("multiselect") is True,
        upload=upload_of(raw),
        upload_folder="output" if more.get("image_folder") == "output" else "input",
        parts=_parts(name, kind, more, depth) if kind in _DYNAMIC and depth < _MAX_NESTING else _NO_PARTS,
        is_widget=not more.get("forceInput") and (more.get("widgetType") or kind) in WIDGET_TYPES,
        controls=_controls(name, kind, more),
        force_input=bool(more.get("forceInput")),
        dynamic_prompts=bool(more.get("dynamicPrompts")),
        template=str(template.get("template_id", "")) if kind == MATCH_TYPE else "",
        allowed=_allowed(kind, more, template),
        is_list_type=_is_list(head),
    )


def make_specs(kinds: Any, *, order: Any = None, prefix: str = "", depth: int = 0) -> dict[str, InputSpec]:
    """The specs of an `input` object by name: required before optional, each in `input_order`."""
    found: dict[str, InputSpec] = {}
    for kind in ("required", "optional"):
        inputs = kinds.get(kind) if isinstance(kinds, Mapping) else None
        if isinstance(inputs, Mapping):
            names = _ordered(inputs, order.get(kind) if isinstance(order, Mapping) else None)
            for name in names:
                full = f"{prefix}{name}"
                found[full] = make_spec(full, inputs[name], required=kind == "required", depth=depth)
    return found


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


def _parts(name: str, kind: str, more: Mapping[str, Any], depth: int) -> Mapping[str, tuple[InputSpec, ...]]:
    prefix = f"{name}."
    if kind == DYNAMIC_COMBO:
        options = [item for item in _listed(more.get("options")) if isinstance(item, Mapping)]
        made = {
            item["key"]: tuple(make_specs(item.get("inputs"), prefix=prefix, depth=depth + 1).values())
            for item in reversed(options)  # of two options with one key, ComfyUI takes the first
            if isinstance(item.get("key"), str)
        }
        return MappingProxyType(made)
    if kind == DYNAMIC_SLOT:
        inside = make_specs(more.get("inputs"), prefix=prefix, depth=depth + 1)
        return MappingProxyType({"": tuple(inside.values())})
    return MappingProxyType({"": tuple(_grown(prefix, more.get("template"), depth))})


def _grown(prefix: str, template: Any, depth: int) -> list[InputSpec]:
    """All parts that an autogrow group may have; the first `min` of them are required.

    Source: `Autogrow` in ComfyUI's comfy_api/latest/_io.py, which uses the template's first input.
    """
    if not isinstance(template, Mapping):
        return []
    one = next(iter(make_specs(template.get("input"), depth=depth + 1).values()), None)
    if one is None:
        return []
    least = _number(template.get("min"))
    names: Sequence[Any] = _listed(template.get("names"))
    if not names:
        most = _number(template.get("max"))
        names = [f"{template.get('prefix', '')}{i}" for i in range(_count(most, _MAX_PARTS))]
    return [
        replace(one, name=f"{prefix}{part}", required=one.required and place < _count(least, 1))
        for place, part in enumerate(islice(names, _MAX_PARTS))
    ]


def _count(number: float | None, otherwise: int) -> int:
    return otherwise if number is None or math.isnan(number) else int(max(0, min(number, _MAX_PARTS)))


def _controls(name: str, kind: str, more: Mapping[str, Any]) -> int:
    flag = more.get("control_after_generate")
    if more.get("forceInput") or kind not in {"INT", "COMBO"}:
        return 0
    if kind == "COMBO":
        return 2 if flag else 0
    return 1 if flag or (flag is None and name in SEEDS) else 0


def _allowed(kind: str, more: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    found = template.get("allowed_types") if kind == MATCH_TYPE else more.get("slotType")
    return found if isinstance(found, str) and found else "*"


def _options(head: Any, more: Mapping[str, Any]) -> tuple[Value, ...] | None:
    if _is_list(head):
        return tuple(freeze(item) for item in head)
    if head == "COMBO":
        return tuple(freeze(item) for item in _listed(more.get("options")))
    if head == DYNAMIC_COMBO:
        options = _listed(more.get("options"))
        return tuple(freeze(item["key"]) for item in options if isinstance(item, Mapping) and "key" in item)
    return None


def _ordered(inputs: Mapping[str, Any], order: Any) -> list[str]:
    first = [name for name in _listed(order) if isinstance(name, str) and name in inputs]
    return list(dict.fromkeys([*first, *inputs]))


def _listed(value: Any) -> Sequence[Any]:
    return value if _is_list(value) else ()


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
