"""Looks at every value of every node of a file for models."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from comfyfarm.workflow.file_node import WIDGETS, FileNode
from comfyfarm.workflow.folders import FolderMap, approx_vae
from comfyfarm.workflow.model_files import is_model_file
from comfyfarm.workflow.model_input import ModelInput, Role
from comfyfarm.workflow.names import slashed
from comfyfarm.workflow.node import Value
from comfyfarm.workflow.references.embeddings import TOKEN, find_embeddings
from comfyfarm.workflow.references.fed_names import fed_folders
from comfyfarm.workflow.references.hinted_folders import HintedFolders
from comfyfarm.workflow.references.hub_names import is_hub_repository, is_repository
from comfyfarm.workflow.references.loader_names import folder_by_name
from comfyfarm.workflow.references.lora_tags import find_tags, tag_readers
from comfyfarm.workflow.references.named_values import NamedValues, is_dull
from comfyfarm.workflow.references.only_file import OnlyFiles
from comfyfarm.workflow.references.reference import Kind, Reference, Unclassified
from comfyfarm.workflow.schema import NodeSchema

_URL = re.compile(r"^https?://", re.IGNORECASE)
_LONGEST_NAME, _LONGEST_LIST = 1024, 100_000
"""Characters: longer text is prose; of a text, what is looked at for a list of models."""
_NO_PATH = re.compile(r"[\"<>{}=]|.{2}:")  # an address, JSON, a word of the prompt language
_BREAKS = re.compile(r"[\n\r,;|]+")
_NOT_NAMES = frozenset({"filename_prefix", "videopreview", "randomizer_config"})
"""What is no model though it looks like one: names of results, and what a node did last."""
_UNNAMED = re.compile(rf"{WIDGETS}\.\d+")
_CHOICES = str.maketrans("{|}", "   ")  # the editor chooses among `{a|b}`: any may be needed
_CHOSEN = ("AIO_Preprocessor", "preprocessor")
"""Class and input of the node that is any preprocessor, by its value."""


class Finder:
    """Gathers the references of one file, in the order of its nodes."""

    def __init__(self, nodes: Sequence[FileNode], schema: NodeSchema) -> None:
        self._schema = schema
        self._folders: FolderMap = schema.folders
        self._readers = tag_readers(nodes, self._folders)
        self._fed = fed_folders(nodes, self._folders)
        self._hints = HintedFolders()
        self._only = OnlyFiles(schema)
        self.references: dict[tuple[object, ...], Reference] = {}
        self.unclassified: list[Unclassified] = []

    def look_at(self, node: FileNode) -> None:
        """Find what one node names."""
        known = self._folders.of(node.class_type)
        if known.shows:
            return
        if known.is_implicit:
            is_on = NamedValues(node, self._folders).is_on
            self._add(node, None, None, folder=known.implicit_folder, kind=Kind.IMPLICIT, counts=is_on)
        elif known.fetches_default(node.inputs):
            self._add(node, None, None, folder=None, kind=Kind.IMPLICIT)
        if is_dull(node):
            return
        self._hints = HintedFolders(node.models)
        values = NamedValues(node, self._folders)
        for name, value in values:
            if isinstance(value, str):
                if (node.class_type, name) == _CHOSEN and self._folders.runs_model(value):
                    self._add(node, None, None, folder=None, kind=Kind.IMPLICIT)
                self._text(node, name, value, counts=values.counts(name))
            elif isinstance(value, Mapping | tuple):
                self._nested(node, name, value, counts=values.counts(name))

    def _nested(self, node: FileNode, name: str, value: Value, *, counts: bool) -> None:
        """Values inside objects and lists. A flag beside a LoRA says whether it is used."""
        ahead: list[tuple[str, Value, bool]] = [(name, value, counts)]
        while ahead:
            at, item, on = ahead.pop()
            if isinstance(item, str):
                self._text(node, at, item, counts=on)
            elif isinstance(item, tuple):
                ahead.extend((f"{at}.{place}", one, on) for place, one in reversed([*enumerate(item)]))
            elif isinstance(item, Mapping):
                self._object(node, at, item, ahead, counts=on)

    def _object(
        self,
        node: FileNode,
        name: str,
        item: Mapping[str, Value],
        ahead: list[tuple[str, Value, bool]],
        *,
        counts: bool,
    ) -> None:
        on = counts and item.get("on", True) is not False and item.get("active", True) is not False
        lora, listed, content = item.get("lora"), item.get("name"), item.get("content")
        if isinstance(lora, str):
            if not self._folders.is_sentinel(node.class_type, name, lora):
                self._add(node, self._row(node, name), lora, folder="loras", kind=Kind.FILE, counts=on)
        elif isinstance(listed, str) and "strength" in item:
            self._add(
                node, name.rpartition(".")[0] or name, listed, folder="loras", kind=Kind.LORA_TEXT, counts=on
            )
        elif isinstance(content, str) and self._folders.input(node.class_type, name) is not None:
            self._text(node, name, content, counts=on)
        elif name not in _NOT_NAMES:
            ahead.extend((f"{name}.{key}", one, on) for key, one in reversed([*item.items()]))

    def _row(self, node: FileNode, name: str) -> str:
        """What the editor calls the row of a list of LoRAs: they are numbered as they stand."""
        if not name.startswith(WIDGETS):
            return name
        widgets = NamedValues(node, self._folders)
        rows = [at for at, value in widgets if isinstance(value, Mapping) and "lora" in value]
        return f"lora_{rows.index(name) + 1}" if name in rows else name

    def _text(self, node: FileNode, name: str, text: str, *, counts: bool) -> None:
        given = self._folders.input(node.class_type, name)
        if given is not None:
            self._mapped(node, name, text, given, counts=counts)
        elif self._is_prose(node, name, text):
            self._prose(node, name, text)
        elif is_model_file(text) or (_URL.match(text) and folder_by_name(name) is not None):
            self._file(node, name, text, counts=counts)
        elif (
            "/" in text
            and is_hub_repository(node.class_type, name, text)
            and not self._schema.input(node.class_type, name)
        ):
            self._add(node, name, text, folder=None, kind=Kind.HF_REPO, counts=counts)
        else:
            self._prose(node, name, text)

    def _mapped(self, node: FileNode, name: str, text: str, given: ModelInput, *, counts: bool) -> None:
        is_file = is_model_file(text)
        if given.role is Role.LIST:
            one = replace(given, role=Role.FILE)
            for line in filter(None, map(str.strip, text[:_LONGEST_LIST].splitlines())):
                self._mapped(node, name, line, one, counts=counts)
            return
        if given.role is Role.PRESET or (
            not is_file and self._folders.is_sentinel(node.class_type, name, text)
        ):
            return
        if _URL.match(text):
            self._add(node, name, text, folder=None, kind=Kind.URL, counts=counts)
        elif given.role is Role.HUB or given.role is Role.FETCHED:
            if given.role is Role.FETCHED or is_repository(text):
                self._add(node, name, text, folder=None, kind=Kind.HF_REPO, counts=counts)
            elif is_file:
                self._file(node, name, text, counts=counts)
        elif given.folders[0] == "vae" and approx_vae(text):
            self._add(node, name, text, folder="vae_approx", kind=Kind.FILE, counts=counts)
        elif given.role is not Role.EDITOR or is_file:
            kind = Kind.DIRECTORY if given.role is Role.DIRECTORY and not is_file else Kind.FILE
            used = counts and given.role is not Role.EDITOR
            self._add(node, name, text, folder=self._folder(text, given), kind=kind, counts=used)

    def _file(self, node: FileNode, name: str, text: str, *, counts: bool) -> None:
        """A name that ends like a model's, in an input that the map does not have."""
        if self._is_asset(node, name) or name in _NOT_NAMES:
            return
        if _URL.match(text):
            self._add(node, name, text, folder=None, kind=Kind.URL, counts=counts)
            return
        folder = self._fed.get(node.id) or folder_by_name(name) or self._hints.of(text)
        if folder is None and _UNNAMED.fullmatch(name):
            folder = self._only.folder(node)
        if folder is not None:
            self._add(node, name, text, folder=folder, kind=Kind.FILE, counts=counts)
        elif node.active and counts:
            self._loose(node, name, text)

    def _prose(self, node: FileNode, name: str, text: str) -> None:
        for found in find_embeddings(text.translate(_CHOICES) if "{" in text else text):
            self._add(node, name, found, folder="embeddings", kind=Kind.EMBEDDING)
        if node.id in self._readers:
            for found in find_tags(text):
                self._add(node, name, found, folder="loras", kind=Kind.LORA_TEXT)
        if "\n" in text and node.active and not self._schema.knows(node.class_type):
            self._listed(node, name, text)

    def _listed(self, node: FileNode, name: str, text: str) -> None:
        """Packs take lists of models as lines of text. Where they look is not known."""
        words = (word.strip(" \t\"'") for word in _BREAKS.split(text[:_LONGEST_LIST]))
        for word in dict.fromkeys(words):
            if is_model_file(word) and not _NO_PATH.search(word) and len(word) <= _LONGEST_NAME:
                self._loose(node, name, word)

    def _loose(self, node: FileNode, name: str, text: str) -> None:
        self.unclassified.append(
            Unclassified(node=node.id, class_type=node.class_type, input=name, name=text)
        )

    def _is_prose(self, node: FileNode, name: str, text: str) -> bool:
        """Prompts and notes, which may end in `.bin` without meaning a file."""
        spec = self._schema.input(node.class_type, name)
        is_long = "\n" in text or len(text) > _LONGEST_NAME
        return (
            is_long
            or TOKEN in text
            or name == "filename_prefix"
            or name in self._folders.of(node.class_type).texts
            or (spec is not None and spec.multiline)
        )

    def _is_asset(self, node: FileNode, name: str) -> bool:
        spec = self._schema.input(node.class_type, name)
        return self._folders.is_asset_input(node.class_type, name) or (
            spec is not None and spec.upload is not None
        )

    def _add(
        self,
        node: FileNode,
        name: str | None,
        text: str | None,
        *,
        folder: str | None,
        kind: Kind,
        counts: bool = True,
    ) -> None:
        path = text if text is None or kind is Kind.URL else slashed(text)
        if folder is not None and path is not None:
            folder, path = self._folders.by_prefix(folder, path, class_type=node.class_type)
        active = node.active and counts
        # A LoRA may stand in a list and in the text made of it.
        key = (node.id, text if kind is Kind.LORA_TEXT else name, text, folder, kind)
        known = self.references.get(key)
        if known is not None and (known.kind is not Kind.LORA_TEXT or active):
            active, name = active or known.active, known.input
        elif known is not None:
            name = known.input
        self.references[key] = Reference(
            node=node.id,
            class_type=node.class_type,
            input=name,
            name=text,
            folder=folder,
            path=path,
            kind=kind,
            active=active,
        )

    def _folder(self, text: str, given: ModelInput) -> str:
        """The folder of an input that offers several: the editor's hint decides, else the first."""
        hinted = self._hints.of(text) if len(given.folders) > 1 else None
        return hinted if hinted in given.folders else given.folders[0]
