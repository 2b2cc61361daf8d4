"""A model that a workflow needs, and a text that only looks like one."""

import unicodedata
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import NodeId
from comfyfarm.workflow.names import slashed


class Kind(StrEnum):
    """What a reference names."""

    FILE = "file"
    DIRECTORY = "directory"
    EMBEDDING = "embedding"
    LORA_TEXT = "lora_text"
    HF_REPO = "hf_repo"
    URL = "url"
    IMPLICIT = "implicit"


class Reference(BaseModel):
    """A model that a node needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: NodeId
    class_type: str
    input: str | None
    name: str | None
    """As the file has it; None for an implicit one."""
    folder: str | None
    """Key of the models folder, of today; None for what lies in none."""
    path: str | None
    """The name with `/` between folders; no extension is added."""
    kind: Kind
    active: bool

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What makes two references one file: folder and path, composed as Unicode's NFC has it."""
        return self.folder, None if self.path is None else unicodedata.normalize("NFC", self.path)


class Unclassified(BaseModel):
    """A text that looks like a model and could not be placed in a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: NodeId
    class_type: str
    input: str
    name: str

    @property
    def path(self) -> str:
        """The name with `/` between folders."""
        return slashed(self.name)


class References(BaseModel):
    """All models of a workflow, in the order of its nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    references: tuple[Reference, ...] = ()
    unclassified: tuple[Unclassified, ...] = ()
