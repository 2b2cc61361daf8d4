"""An input that names a model, as the tables of loaders say it in a short form.

`loras@3` is a file of the folder `loras`, and the fourth widget of the node; `vae@9+3` the tenth
widget for the first number and every third from there; `a|b` is one of several folders; `*loras` is
files of `loras`, one a line.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from comfyfarm.workflow.file_node import WIDGETS

_SHORT = re.compile(r"(?P<mark>[~*]?)(?P<keys>[^@/]*)(?P<tree>/?)(?:@(?P<at>\d+)(?:\+(?P<step>\d+))?)?")


class Role(StrEnum):
    """What the value of such an input is."""

    FILE = "file"
    DIRECTORY = "directory"
    """A directory, unless it ends like a file."""
    HUB = "hub"
    """A repository of a model hub, fetched when the node runs."""
    FETCHED = "fetched"
    """A file that the pack fetches for itself into a folder of its own."""
    PRESET = "preset"
    """A choice that stands for files by their names' patterns."""
    LIST = "list"
    """Files, one a line."""
    EDITOR = "editor"
    """A file that the editor writes into a text; the node itself does not look at it."""


_MARKED = {"~": Role.EDITOR, "*": Role.LIST}


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One input that names a model."""

    role: Role
    folders: tuple[str, ...] = ()
    """The models-folder keys, the modern one first."""
    place: int | None = None
    """Its index among the node's widgets, counted from 0; of the first when there are several."""
    step: int = 0
    """Widgets between two of a numbered input."""

    @classmethod
    def read(cls, text: str, legacy: Mapping[str, str]) -> "ModelInput":
        """From the short form. `legacy` gives the key of today for an old one."""
        match = _SHORT.fullmatch(text)
        if match is None:
            raise ValueError(f"no input of a loader: {text!r}")
        place = None if match["at"] is None else int(match["at"])
        role = next((role for role in (Role.HUB, Role.FETCHED, Role.PRESET) if role == match["keys"]), None)
        if role is not None:
            return cls(role, (), place)
        listed = match["keys"].split("|")
        folders = tuple(dict.fromkeys((*(legacy.get(key, key) for key in listed), *listed)))
        role = _MARKED[match["mark"]] if match["mark"] else Role.DIRECTORY if match["tree"] else Role.FILE
        return cls(role, folders, place, int(match["step"] or 0))


@dataclass(frozen=True, slots=True)
class Where:
    """An input of the node that says which of the numbered ones count."""

    input: str
    place: int | None = None
    """Its index among the node's widgets, counted from 0; of the first when there are several."""
    step: int = 0
    """Widgets between two of a numbered input."""


@dataclass(frozen=True, slots=True)
class CountedInputs:
    """Which of a node's numbered inputs count; the others keep what was once chosen in them."""

    count: Where | None = None
    """How many count."""
    on: Where | None = None
    """Whether any counts."""
    off: Where | None = None
    """Whether none counts."""
    switch: Where | None = None
    """A switch for each; `#` in its name is the number."""
    unless_batch: Where | None = None
    """A mode; none counts when it says `Batch`."""

    @classmethod
    def read(cls, raw: Mapping[str, Mapping[str, Any]]) -> "CountedInputs":
        """From the table's form."""
        return cls(**{key: Where(**value) for key, value in raw.items()})


@dataclass(frozen=True, slots=True)
class ClassLoads:
    """All that a map of folders knows of one class."""

    inputs: Mapping[str, ModelInput]
    """The inputs that name models, in the order of its widgets; `#` is a number."""
    texts: Mapping[str, tuple[int, ...]]
    """Its prompts, with their indices among its widgets in one version or another."""
    counted: CountedInputs
    """Which of its numbered inputs count."""
    is_implicit: bool
    """Whether it loads models without naming them."""
    implicit_folder: str | None
    """The folder of those, where it is known."""
    shows: bool
    """Whether it only shows text to people, such as a note."""

    def fetches_default(self, given: Collection[str]) -> bool:
        """Whether a node with these inputs fetches a model without saying which of several."""
        if not self.inputs or any(one.role is not Role.FETCHED for one in self.inputs.values()):
            return False
        return WIDGETS not in given and self.inputs.keys().isdisjoint(given)
