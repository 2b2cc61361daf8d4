"""GLB and safetensors: a JSON header whose extras or metadata hold the graphs as texts.

Source: glTF 2.0, "GLB file format", and `SaveGLB` of ComfyUI's nodes_save_3d.py; the safetensors
format, and `SaveLatent` of ComfyUI's nodes.py.
"""

import json
from typing import Any

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts
from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.strict import parse

_JSON_CHUNK = b"JSON"


def glb_texts(data: memoryview) -> Texts:
    """The texts in the extras of a GLB file's asset, or of its root.

    Raises:
        Cut: it is shorter than it says, or its JSON is none.
    """
    span = Span(data)
    span.skip(8)
    size = span.little(4)
    length, kind = span.little(4), bytes(span.take(4))
    if kind != _JSON_CHUNK:
        raise Cut
    root = _parsed(span.take(length))
    asset = root.get("asset")
    for holder in (root, asset if isinstance(asset, dict) else {}):
        yield from _texts_in(holder.get("extras"))
    if size > len(data):
        raise Cut


def safetensors_texts(data: memoryview) -> Texts:
    """The texts in the metadata of a safetensors file, such as a `.latent` of ComfyUI.

    Raises:
        Cut: its header is cut, or is no JSON.
    """
    span = Span(data)
    yield from _texts_in(_parsed(span.take(span.little(8))).get("__metadata__"))


def _parsed(data: memoryview) -> dict[str, Any]:
    try:
        root, _ = parse(bytes(data), name="")
    except Refused as exc:
        raise Cut from exc
    return root if isinstance(root, dict) else {}


def _texts_in(extras: Any) -> Texts:
    if isinstance(extras, dict):
        for key, value in extras.items():
            text = value if isinstance(value, str) else json.dumps(value)
            yield Text(key, memoryview(text.encode("utf-8", "replace")))
