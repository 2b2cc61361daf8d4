"""Node results, kept by class, inputs and ancestors, never by node id.

By default, only results that the prompt before could use survive.
Source: facts of ComfyUI 0.27, section 8; [rec: same_workflow_twice, cache_classic].
"""

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from fake_server.comfy.execute import Result, digest_of
from fake_server.comfy.inputs import is_link
from fake_server.comfy.places import Places

IsChanged = Callable[[Mapping[str, Any]], Any]
"""A node class's own check, given the node's inputs."""

_READS_FILE: Mapping[str, str] = {
    "LoadImage": "image",
    "LoadImageMask": "image",
    "LoadImageOutput": "image",
    "LoadAudio": "audio",
    "LoadVideo": "file",
    "LoadLatent": "latent",
}


class CachePolicy(StrEnum):
    """What a new prompt finds of the results of those before it."""

    CLASSIC = "classic"
    """What the prompt before could use, as by default on a host with up to 96 GB."""
    KEEP = "keep"
    """Everything, as by default on a bigger host."""
    NONE = "none"
    """Nothing."""


class ResultCache:
    """Results by the digest of what made them."""

    def __init__(self, policy: CachePolicy = CachePolicy.CLASSIC) -> None:
        self._policy = policy
        self._results: dict[str, Result] = {}

    def begin(self, digests: Mapping[str, str]) -> None:
        """Drop what this prompt may not use."""
        if self._policy is CachePolicy.KEEP:
            return
        if self._policy is CachePolicy.NONE:
            self._results.clear()
        wanted = set(digests.values())
        self._results = {digest: result for digest, result in self._results.items() if digest in wanted}

    def get(self, digest: str) -> Result | None:
        """The result of an earlier run, if it is still here."""
        return self._results.get(digest)

    def put(self, digest: str, result: Result) -> None:
        """Keep a result."""
        self._results[digest] = result

    def clear(self) -> None:
        """Forget everything."""
        self._results.clear()


def digests_of(
    graph: Mapping[str, Any], places: Places, is_changed: Mapping[str, IsChanged] | None = None
) -> dict[str, str]:
    """The digest of every node; a node that reads a file carries the file's hash as `is_changed`.

    Raises:
        KeyError: a node has no `inputs`. The real server's worker thread dies of it.
    """
    digests: dict[str, str] = {}
    for node_id in graph:
        _digest(node_id, graph, places, is_changed or {}, digests)
    return digests


def _digest(
    root: str,
    graph: Mapping[str, Any],
    places: Places,
    is_changed: Mapping[str, IsChanged],
    digests: dict[str, str],
) -> None:
    stack = [root]
    met: set[str] = set()
    while stack:
        node_id = stack[-1]
        missing = [source for source in _sources(graph[node_id]) if source in graph and source not in digests]
        if node_id not in digests and missing and node_id not in met:
            met.add(node_id)
            stack += missing
            continue
        stack.pop()
        if node_id not in digests:
            digests[node_id] = _own(graph[node_id], places, is_changed, digests)


def _own(
    node: dict[str, Any], places: Places, is_changed: Mapping[str, IsChanged], digests: Mapping[str, str]
) -> str:
    inputs = {
        name: [digests.get(value[0], "missing"), value[1]] if is_link(value) else value
        for name, value in node["inputs"].items()
    }
    changed = ""
    name = _READS_FILE.get(node["class_type"])
    if name is not None and isinstance(node["inputs"].get(name), str):
        path = places.input_file(node["inputs"][name])
        if path.is_file():
            changed = hashlib.sha256(path.read_bytes()).hexdigest()
            node["is_changed"] = [changed]
    if node["class_type"] in is_changed:
        changed = _asked(node, is_changed[node["class_type"]])
    return digest_of(node["class_type"], inputs, changed=changed)


def _asked(node: dict[str, Any], is_changed: IsChanged) -> str:
    """What the node's own check says, once for a run; NaN, or an exception, is never the same again."""
    if "is_changed" not in node:
        try:
            node["is_changed"] = [is_changed(node["inputs"])]
        except Exception:  # noqa: BLE001 - any exception means changed, as there
            node["is_changed"] = math.nan
    answer = node["is_changed"][0] if isinstance(node["is_changed"], list) else math.nan
    return uuid.uuid4().hex if answer != answer else json.dumps(answer)


def _sources(node: Mapping[str, Any]) -> list[str]:
    return [value[0] for value in node["inputs"].values() if is_link(value)]
