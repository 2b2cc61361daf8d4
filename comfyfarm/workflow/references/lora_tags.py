"""LoRAs named in prompts: `<lora:NAME:WEIGHT>`. ComfyUI itself ignores them; nodes of some packs do not."""

import re
from collections.abc import Iterable, Mapping

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.node import Link

_TAG = re.compile(r"<lora:([^:<>]+)(?::[^<>]*)?>", re.IGNORECASE)
_WILDCARD = re.compile(r"__([\w.\-*/\\+ ]+?)__")


def find_tags(text: str) -> tuple[str, ...]:
    """The names in a text, each once, in order, without weights."""
    if "<" not in text:
        return ()
    return tuple(dict.fromkeys(match.strip() for match in _TAG.findall(text)))


def find_wildcards(text: str) -> tuple[str, ...]:
    """The wildcard files that a text draws from, `__faces__`, each once, in order."""
    return tuple(dict.fromkeys(_WILDCARD.findall(text))) if "__" in text else ()


def tag_readers(nodes: Iterable[FileNode], folders: FolderMap) -> frozenset[NodeId]:
    """The nodes whose texts are read for tags: by themselves, or by what they are linked to."""
    by_id = {node.id: node for node in nodes}
    ahead = [node for node in by_id.values() if folders.reads_tags(node.class_type)]
    found = {node.id for node in ahead}
    while ahead:
        for source in _texts_of(ahead.pop(), by_id):
            if source.id not in found:
                found.add(source.id)
                ahead.append(source)
    return frozenset(found)


_TEXT_INPUT = re.compile(r"text|prompt|string|positive|negative|wildcard|delimiter|value|any", re.IGNORECASE)


def _texts_of(node: FileNode, by_id: Mapping[NodeId, FileNode]) -> Iterable[FileNode]:
    for name, value in node.inputs.items():
        if isinstance(value, Link) and _TEXT_INPUT.search(name) and value.node in by_id:
            yield by_id[value.node]
