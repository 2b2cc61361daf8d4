"""What people should know of a workflow's models before it runs."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from comfyfarm.addresses import mask
from comfyfarm.ids import NodeId
from comfyfarm.workflow.editor_nodes import virtual_of
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.findings import Finding, error, info, warning
from comfyfarm.workflow.folders import implicit_names
from comfyfarm.workflow.model_files import is_pickled
from comfyfarm.workflow.model_input import Role
from comfyfarm.workflow.names import base_name, slashed
from comfyfarm.workflow.node import texts_in
from comfyfarm.workflow.references.embeddings import SUFFIXES
from comfyfarm.workflow.references.lora_tags import find_tags, find_wildcards, tag_readers
from comfyfarm.workflow.references.named_values import NamedValues, is_dull
from comfyfarm.workflow.references.reference import Kind, Reference, References
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_FILES = frozenset({Kind.FILE, Kind.EMBEDDING, Kind.LORA_TEXT})
_ODD = re.compile(r"^\s|\s$|\s\.\w+$|\s[/\\]|%[0-9A-Fa-f]{2}| \(\d+\)(?=\.\w+\s*$)|[\x00-\x1f\x7f]")


def reference_findings(
    nodes: Iterable[FileNode], references: References, schema: NodeSchema
) -> tuple[Finding, ...]:
    """What is to be said of models. Nothing is said of nodes that do not run."""
    listed = [node for node in nodes if node.active]
    readers = tag_readers(listed, schema.folders)
    have = None if schema.embeddings is None else frozenset(map(slashed, schema.embeddings))
    found: list[Finding] = []
    for reference in references.references:
        if reference.active:
            found.extend(_of_reference(reference, schema, have))
    for item in references.unclassified:
        message = f"{shown(item.name)} looks like a model, and its folder is not known"
        remedy = "list it in the catalogue under the folder that its node reads"
        found.append(warning("unclassified_model", message, remedy, node=item.node, field=item.input))
        found.extend(_of_name(item.name, item.node, item.input))
    for node in listed:
        if node.models:
            found.extend(_stale(node, schema))
        if not is_dull(node):
            found.extend(_of_texts(node, schema, is_reader=node.id in readers))
    found.extend(_unseen(listed, references, schema))
    return tuple(found)


def _of_reference(one: Reference, schema: NodeSchema, embeddings: frozenset[str] | None) -> Iterator[Finding]:
    name = one.name or ""
    if one.kind is Kind.IMPLICIT:
        yield _implicit(one)
    elif one.kind is Kind.HF_REPO:
        message = f"{shown(name)} is fetched when the node runs, at whatever revision is there then"
        remedy = "fetch it beforehand at a fixed revision, and let the server run offline"
        yield warning("hub_model", message, remedy, node=one.node, field=one.input)
    elif one.kind is Kind.URL:
        yield _address(one, schema)
    elif one.kind is Kind.EMBEDDING and embeddings is not None and not _is_there(name, embeddings):
        message = f"the server has no embedding {shown(name)}, and would draw without it"
        remedy = "put it into the folder embeddings"
        yield error("missing_embedding", message, remedy, node=one.node, field=one.input)
    if one.kind is not Kind.URL:
        yield from _of_name(name, one.node, one.input, is_file=one.kind in _FILES)


def _of_name(name: str, node: NodeId, field: str | None, *, is_file: bool = True) -> Iterator[Finding]:
    if is_file and is_pickled(name):
        message = f"{shown(name)} is a pickle, which can run code when it is loaded"
        remedy = "use a safetensors file, or allow this one by its hash"
        yield warning("pickle", message, remedy, node=node, field=field)
    if _ODD.search(name):
        message = f"{shown(name)} is an odd file name: blanks at an end, a browser's number, or an escape"
        remedy = "see whether the file is really called so; names are compared as they stand"
        yield warning("odd_name", message, remedy, node=node, field=field)


def _implicit(one: Reference) -> Finding:
    where = f" from the folder {one.folder}" if one.folder else ""
    known = implicit_names(one.class_type)
    names = f", known to be {', '.join(known)}" if known else ""
    message = f"{one.class_type} loads models{where} that the file does not name{names}"
    remedy = "prewarm the server with them: a lock cannot hold what has no name"
    return warning("implicit_models", message, remedy, node=one.node)


def _address(one: Reference, schema: NodeSchema) -> Finding:
    tell = error if schema.is_core(one.class_type) else warning
    message = f"{shown(mask(one.name or ''))} is an address, and ComfyUI takes names of files it has"
    remedy = "name the file, and give the address as its source in the catalogue"
    return tell("url_model", message, remedy, node=one.node, field=one.input)


def _is_there(name: str, have: frozenset[str]) -> bool:
    path = slashed(name)
    return any(path + suffix in have for suffix in ("", *SUFFIXES))


def _stale(node: FileNode, schema: NodeSchema) -> Iterator[Finding]:
    """The editor's notes on downloads stay when people choose another file."""
    named = {_base(text) for _, value in NamedValues(node, schema.folders) for text in texts_in(value)}
    if not any("." in text for text in named):
        return
    for hint in node.models:
        if _base(hint.name) not in named:
            message = (
                f"the file's note on downloads names {shown(hint.name)}, which no value of the node does"
            )
            remedy = (
                "the node's value counts; choose the model in the editor again to bring the note up to date"
            )
            yield warning("stale_metadata", message, remedy, node=node.id)


def _of_texts(node: FileNode, schema: NodeSchema, *, is_reader: bool) -> Iterator[Finding]:
    folders = schema.folders
    if folders.of(node.class_type).shows:
        return
    for name, value in NamedValues(node, folders):
        given = folders.input(node.class_type, name)
        if given is not None and given.role is Role.PRESET and isinstance(value, str):
            message = f"{shown(value)} stands for models that are looked for by patterns of their names"
            remedy = "see that the folders ipadapter, clip_vision and loras hold them"
            yield warning("preset_models", message, remedy, node=node.id, field=name)
        if given is None:
            for text in texts_in(value):
                yield from _of_text(node, name, text, schema, is_reader=is_reader)


def _of_text(
    node: FileNode, name: str, text: str, schema: NodeSchema, *, is_reader: bool
) -> Iterator[Finding]:
    if is_reader:
        for wildcard in find_wildcards(text):
            message = f"__{wildcard}__ is drawn from a file when the prompt runs, so its models are not known"
            remedy = "write out what it may be, or look into the file"
            yield warning("wildcard_unresolved", message, remedy, node=node.id, field=name)
        return
    for tag in find_tags(text):
        if schema.knows(node.class_type) and schema.is_core(node.class_type):
            message = f"ComfyUI ignores <lora:{tag}> in a prompt"
            remedy = "load it with a LoraLoader"
            yield info("lora_tag_ignored", message, remedy, node=node.id, field=name)
        else:
            message = f"<lora:{tag}> loads a LoRA if {node.class_type} reads such tags, which is not known"
            remedy = "list it in the catalogue if it does"
            yield warning("lora_tag_unsure", message, remedy, node=node.id, field=name)


def _unseen(nodes: Sequence[FileNode], references: References, schema: NodeSchema) -> Iterator[Finding]:
    told = {one.node for one in references.references}
    seen: set[str] = set()
    for node in nodes:
        kind = node.class_type
        if kind in seen or virtual_of(kind) is not None or schema.knows(kind) or schema.folders.knows(kind):
            continue
        seen.add(kind)
        if node.id not in told:
            message = f"{kind} is not in {schema.name}, and may load models that nobody can see here"
            remedy = "check against a server that has it (--schema-from URL)"
            yield warning("unseen_models", message, remedy, node=node.id, field="class_type")


def _base(name: str) -> str:
    return unicodedata.normalize("NFC", base_name(name).strip())
