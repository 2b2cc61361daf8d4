"""The values of a node of a file, under the names that its inputs have.

A UI file gives the widgets of a class without schema as a bare list. The map of folders knows where the
inputs that name models stand among them.
"""

import re
from collections.abc import Iterator, Mapping

from comfyfarm.workflow.file_node import WIDGETS, FileNode
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.model_files import is_model_file
from comfyfarm.workflow.model_input import CountedInputs, ModelInput, Where
from comfyfarm.workflow.node import Link, Value, is_textless, unwrap
from comfyfarm.workflow.references.embeddings import TOKEN

_ALL = CountedInputs()
_DIGITS = re.compile(r"\d+")


def is_dull(node: FileNode) -> bool:
    """Whether the node has links and numbers only, which name nothing."""
    return not node.others and is_textless(node.inputs)


class NamedValues:
    """The values of one node, and which of its numbered inputs count."""

    def __init__(self, node: FileNode, folders: FolderMap) -> None:
        self._node = node
        self._folders = folders
        counted = folders.of(node.class_type).counted
        self._counted = _ALL if counted == _ALL else counted
        widgets = node.inputs.get(WIDGETS)
        self._widgets = unwrap(widgets) if widgets is not None and not isinstance(widgets, Link) else None

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        """Each value with its input's name, or `widgets_values.3` where that is not known."""
        for name, value in self._node.inputs.items():
            if name == WIDGETS:
                yield from self._unnamed()
            elif not isinstance(value, Link):
                yield name, unwrap(value)
        yield from self._node.others.items()

    def counts(self, name: str) -> bool:
        """Whether the node looks at the input at all: stackers keep more than they use."""
        counted = self._counted
        if counted is _ALL:
            return True
        number = _number(name)
        if not self.is_on:
            return False
        if counted.unless_batch is not None and "Batch" in str(self._value(counted.unless_batch)):
            return False
        if number is None:
            return True
        if counted.count is not None:
            count = self._value(counted.count)
            return not isinstance(count, int) or number <= count
        if counted.switch is not None:
            return self._value(counted.switch, number) != "Off"
        return True

    @property
    def is_on(self) -> bool:
        """Whether the node does anything at all: some have a switch of their own."""
        on, off = self._counted.on, self._counted.off
        if on is not None and self._value(on) in (False, "False", "Off", None):
            return False
        return off is None or self._value(off) not in (True, "True", "On")

    def _value(self, where: Where, number: int = 1) -> Value:
        name = where.input.replace("#", str(number))
        place = None if where.place is None else where.place + (number - 1) * where.step
        value = self._node.inputs.get(name)
        if isinstance(value, Link):
            return "unknown"
        if value is not None:
            return unwrap(value)
        if isinstance(self._widgets, Mapping):
            return self._widgets.get(name)
        if isinstance(self._widgets, tuple) and place is not None and place < len(self._widgets):
            return self._widgets[place]
        return "unknown"

    def _unnamed(self) -> Iterator[tuple[str, Value]]:
        if isinstance(self._widgets, Mapping):
            yield from self._widgets.items()
        elif isinstance(self._widgets, tuple):
            names = self._placed(self._widgets)
            for place, value in enumerate(self._widgets):
                name = names.get(place, f"{WIDGETS}.{place}")
                if name not in self._node.inputs:  # else a link took the widget's place
                    yield name, value
        elif self._widgets is not None:
            yield WIDGETS, self._widgets

    def _placed(self, widgets: tuple[Value, ...]) -> dict[int, str]:
        """Names by place. Where a list does not fit the table, files are told apart by their order."""
        loads = self._folders.of(self._node.class_type)
        known, texts = loads.inputs, loads.texts
        length = len(widgets)
        found = {at: name for key, given in known.items() for at, name in _places(key, given, length)}
        prompts = {
            at: name
            for name, places in texts.items()
            for at in places
            if at < length and isinstance(widgets[at], str)
        }
        files = [place for place, value in enumerate(widgets) if _is_file(value)]
        fits = all(isinstance(widgets[at], str | None) for at in found)
        if found and fits and (not files or any(at in found for at in files)):
            return {**prompts, **found}
        plain = [name for name in known if "#" not in name and name not in self._node.inputs]
        if len(files) > len(plain):
            return prompts
        return {**prompts, **dict(zip(files, plain, strict=False))}


def _places(name: str, given: ModelInput, length: int) -> Iterator[tuple[int, str]]:
    if given.place is None:
        return
    if not given.step:
        if given.place < length:
            yield given.place, name
        return
    for number, place in enumerate(range(given.place, length, given.step), start=1):
        yield place, name.replace("#", str(number))


def _is_file(value: Value) -> bool:
    return isinstance(value, str) and is_model_file(value) and TOKEN not in value


def _number(name: str) -> int | None:
    match = _DIGITS.search(name)
    return int(match[0]) if match is not None else None
