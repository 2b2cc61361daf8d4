"""Names for the values of `widgets_values`, which the editor writes down without names.

By place for a class that the schema has, by what the file says for any other: `widgets_values_named`, or
the widgets of its inputs when their number fits. Rows of models that packs draw are known by their shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyfarm.workflow.input_spec import DYNAMIC_COMBO, SEEDS, InputSpec
from comfyfarm.workflow.schema import CUSTOM, NodeSchema
from comfyfarm.workflow.ui.placing import default_of, is_control, parts_of, place
from comfyfarm.workflow.ui.tree import Slot, UiNode

_PREVIEWS: Mapping[str, str] = {
    "Preview3D": "image",
    "PreviewAudio": "audioUI",
    "SaveAudio": "audioUI",
    "SaveAudioAdvanced": "audioUI",
    "SaveAudioMP3": "audioUI",
    "SaveAudioOpus": "audioUI",
    "SaveGLB": "image",
}
"""Players and viewers of the editor, which it queues as if they were inputs; ComfyUI ignores them."""
_OPTIONS_OF_YOUR_OWN = "CustomCombo"
_UPLOAD = "image"
_ROW = frozenset({"on", "lora"})


@dataclass(frozen=True, slots=True)
class Named:
    """The values of one node."""

    values: Mapping[str, Any]
    rest: Sequence[Any] = ()
    """Values without a name: all of them for a class that is not known, else what is too much."""
    odd: Sequence[str] = ()
    """Inputs whose values cannot be what they take, so that all values may be out of place."""


class WidgetNames:
    """Gives names to values by one schema; keeps what it worked out for each node of the file."""

    def __init__(self, schema: NodeSchema) -> None:
        self._schema = schema
        self._layouts: dict[str, tuple[InputSpec, ...]] = {}
        self._named: dict[int, tuple[UiNode, Named]] = {}

    def of(self, node: UiNode) -> Named:
        """The node's own values, before links and hosts."""
        # The node is kept too, so that its id() stays its own.
        known = self._named.get(id(node))
        if known is None:
            known = self._named[id(node)] = (node, self._name(node))
        return known[1]

    def layout(self, class_type: str) -> tuple[InputSpec, ...]:
        """The inputs of a class that have a widget, in the order of their values."""
        if class_type not in self._layouts:
            specs = self._schema.inputs(class_type).values()
            self._layouts[class_type] = tuple(spec for spec in specs if spec.is_widget)
        return self._layouts[class_type]

    def knows(self, class_type: str) -> bool:
        """Whether the schema has the class."""
        return self._schema.knows(class_type)

    def sockets(self, class_type: str) -> tuple[InputSpec, ...]:
        """The inputs of a class that are no widgets, and have no parts."""
        specs = self._schema.inputs(class_type).values()
        return tuple(spec for spec in specs if not spec.is_widget and not spec.is_dynamic)

    def outputs(self, class_type: str) -> tuple[str, ...]:
        """The types of a class's outputs."""
        return self._schema.outputs(class_type)

    def has_input(self, class_type: str, name: str) -> bool:
        """Whether the class has this input, parts of dynamic inputs included."""
        first = name.partition(".")[0]
        return self._schema.input(class_type, name) is not None or (
            first != name and self._schema.input(class_type, first) is not None
        )

    def is_unchosen(self, class_type: str, name: str, values: Mapping[str, Any]) -> bool:
        """Whether a dotted input belongs to an option of a dynamic combo that is not the chosen one."""
        spec = self._schema.input(class_type, name.partition(".")[0])
        if spec is None or spec.type != DYNAMIC_COMBO:
            return False
        return name not in self._schema.expanded(class_type, values)

    def takes_value(self, node: UiNode, slot: Slot) -> bool:
        """Whether an input has a widget, so that it takes a value where nothing is linked."""
        if slot.widget is not None or not self.knows(node.type):
            return True
        spec = self._schema.input(node.type, slot.name)
        return spec is not None and spec.is_widget

    def _name(self, node: UiNode) -> Named:
        if not self._schema.knows(node.type):
            return _with_rows(_by_slots(node))
        layout = self.layout(node.type)
        if isinstance(node.values, dict):
            return _by_name(layout, node.values)
        values = _without_sockets(self._schema.inputs(node.type).values(), node.values)
        if node.type == _OPTIONS_OF_YOUR_OWN:
            return _own_options(values)
        placed = place(layout, values)
        named = Named(placed.named, tuple(values[placed.used :]), placed.misfits)
        if (named.rest or named.odd) and self._schema.module(node.type).startswith(CUSTOM):
            # Scripts of packs draw widgets that no schema has.
            return _with_rows(_by_slots(node) if node.by_name is not None else named)
        preview = _PREVIEWS.get(node.type)
        if preview is not None and preview not in named.values:
            shown = next((value for value in named.rest if isinstance(value, str)), "")
            return replace(named, values={**named.values, preview: shown})
        return named


def _by_name(layout: tuple[InputSpec, ...], values: Mapping[str, Any]) -> Named:
    named: dict[str, Any] = {}
    waiting = list(layout)[::-1]
    while waiting:
        spec = waiting.pop()
        value = values[spec.name] if spec.name in values else default_of(spec)
        if value is not None:
            named[spec.name] = value
        waiting.extend(parts_of(spec, value))
    return Named(named)


def _own_options(values: Sequence[Any]) -> Named:
    """Custom Combo: the choice, its index, and the options, for which the editor draws widgets."""
    names = ["choice", "index", *(f"option{i}" for i in range(1, len(values) - 1))]
    return Named(dict(zip(names, values, strict=False)))


def _by_slots(node: UiNode) -> Named:
    """Of a class that is not known: names as the inputs have them, when values and names fit."""
    if isinstance(node.values, dict):
        return Named({str(name): value for name, value in node.values.items()})
    if node.by_name is not None:
        return Named({name: value for name, value in node.by_name.items() if not _is_editors(name)})
    names = [slot.widget for slot in node.inputs if slot.widget]
    named: dict[str, Any] = {}
    at = 0
    for name in names:
        if at >= len(node.values):
            break
        named[name] = node.values[at]
        at += 1
        if at < len(node.values) and is_control(node.values[at]) and name in SEEDS:
            at += 1
    is_fitting = len(named) == len(names) and (at == len(node.values) or node.values[at:] == [_UPLOAD])
    return Named(named) if is_fitting and names else Named({}, tuple(node.values))


def _with_rows(named: Named) -> Named:
    """Rows of models, as rgthree's Power Lora Loader has them, under the names that it queues them by."""
    rows = [value for value in named.rest if isinstance(value, dict) and value.keys() >= _ROW]
    if not rows:
        return named
    numbered = {f"lora_{at}": row for at, row in enumerate(rows, start=1)}
    others = (value for value in named.rest if not isinstance(value, dict) and value not in ("", None))
    return Named({**named.values, **numbered}, tuple(others), named.odd)


def _is_editors(name: str) -> bool:
    return name.startswith(("control_after_generate", "control_filter_list"))


def _without_sockets(specs: Iterable[InputSpec], values: Sequence[Any]) -> Sequence[Any]:
    """Old files hold values of inputs that have only a socket now; they go when the count says so.

    Source: `migrateWidgetsValues` in ComfyUI_frontend's src/utils/litegraphUtil.ts.
    """
    marks: list[bool] = []
    for spec in specs:
        if spec.is_widget or spec.force_input:
            marks += [spec.force_input] + [False] * spec.controls
    if True not in marks or len(marks) != len(values):
        return values
    return [value for value, is_socket in zip(values, marks, strict=True) if not is_socket]
