"""Which model files a workflow needs: folder map first, then extensions, then text.

Nothing is silent: what looks like a model and cannot be placed is `unclassified`.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from comfyfarm.ids import NodeId
from comfyfarm.workflow.embeddings import find_embeddings
from comfyfarm.workflow.folders import (
    NO_FILE,
    approx_vae,
    folder_of,
    is_directory,
    is_input_file,
    sentinels_of,
)
from comfyfarm.workflow.graph import Node, Workflow
from comfyfarm.workflow.node import Value
from comfyfarm.workflow.schema import NodeSchema

_MODEL = re.compile(
    r"\.(?:safetensors|sft|ckpt|pt|pt2|pth|bin|pkl|gguf|onnx|engine|trt|task|npz|patch)$", re.IGNORECASE
)
_URL = re.compile(r"^https?://", re.IGNORECASE)
_LONGEST_NAME = 1024  # characters; longer text is prose


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
        return self.name.replace("\\", "/")


class References(BaseModel):
    """All models of a workflow, in the order of its nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    references: tuple[Reference, ...] = ()
    unclassified: tuple[Unclassified, ...] = ()


def find_references(workflow: Workflow, schema: NodeSchema) -> References:
    """Every model that the workflow names, and what looks like one."""
    found: list[Reference] = []
    unclassified: list[Unclassified] = []
    for node in workflow.nodes:
        for name, text in _texts(node):
            mapped = folder_of(node.class_type, name)
            if mapped:
                found.extend(_mapped(node, name, text, mapped))
            elif _is_prose(node, name, text, schema):
                found.extend(_embeddings(node, name, text))
            elif _MODEL.search(text) and _URL.match(text):
                found.append(_reference(node, name, text, folder=None, kind=Kind.URL))
            elif _MODEL.search(text) and not _is_asset(node, name, schema):
                unclassified.append(_unclassified(node, name, text))
            else:
                found.extend(_embeddings(node, name, text))
    return References(references=tuple(found), unclassified=tuple(unclassified))


def _texts(node: Node) -> Iterator[tuple[str, str]]:
    """Every text in the node's own values; one inside a list or object is `input.key`."""
    for name, value in node.literals:
        yield from _inside(name, value)


def _inside(name: str, value: Value) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inside(f"{name}.{key}", item)
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            yield from _inside(f"{name}.{place}", item)


def _mapped(node: Node, name: str, text: str, folders: tuple[str, ...]) -> Iterator[Reference]:
    if text in NO_FILE or text in sentinels_of(node.class_type, name):
        return
    if _URL.match(text):
        yield _reference(node, name, text, folder=None, kind=Kind.URL)
    elif folders[0] == "vae" and approx_vae(text):
        yield _reference(node, name, text, folder="vae_approx", kind=Kind.FILE)
    else:
        kind = Kind.DIRECTORY if is_directory(folders[0]) else Kind.FILE
        yield _reference(node, name, text, folder=folders[0], kind=kind)


def _is_prose(node: Node, name: str, text: str, schema: NodeSchema) -> bool:
    """Prompts and notes, which may end in `.bin` without meaning a file."""
    spec = schema.input(node.class_type, name)
    is_long = "\n" in text or len(text) > _LONGEST_NAME
    return is_long or name == "filename_prefix" or (spec is not None and spec.multiline)


def _is_asset(node: Node, name: str, schema: NodeSchema) -> bool:
    spec = schema.input(node.class_type, name)
    return is_input_file(node.class_type, name) or (spec is not None and spec.upload is not None)


def _embeddings(node: Node, name: str, text: str) -> Iterator[Reference]:
    for found in find_embeddings(text):
        yield _reference(node, name, found, folder="embeddings", kind=Kind.EMBEDDING)


def _reference(node: Node, name: str, text: str, *, folder: str | None, kind: Kind) -> Reference:
    return Reference(
        node=node.id,
        class_type=node.class_type,
        input=name,
        name=text,
        folder=folder,
        path=text if kind is Kind.URL else text.replace("\\", "/"),
        kind=kind,
        active=True,
    )


def _unclassified(node: Node, name: str, text: str) -> Unclassified:
    return Unclassified(node=node.id, class_type=node.class_type, input=name, name=text)
