"""The graphs that a picture, film, sound or model carries, whatever its container."""

import re
import zlib
from dataclasses import dataclass

from comfyfarm.workflow.carriers.kinds import MediaKind, kind_of
from comfyfarm.workflow.carriers.span import Cut, Text
from comfyfarm.workflow.findings import Finding, Refused, error, warning

TEXT_LIMIT_BYTES = 32 * 1024 * 1024
"""Of one packed text. zlib packs zeros a thousandfold, and the largest real graphs have a few MB."""

_GRAPHS = ("prompt", "workflow")
_OTHERS = ("comment", "usercomment", "description", "parameters")
_JSON_START = re.compile(rb"\s*[\[{\"]")
_REMEDY = 'pass a file that ComfyUI itself saved, or in ComfyUI choose "Export (API)" and pass that file'


@dataclass(frozen=True, slots=True)
class Embedded:
    """What a file carries. At least one text is there."""

    kind: str
    """The kind of file in words, `a PNG picture`."""
    texts: tuple[tuple[str, bytes], ...]
    """JSON texts in UTF-8 by key: `prompt`, `workflow`, else one that may hold both, such as `comment`."""
    findings: tuple[Finding, ...] = ()
    """`truncated`, when the file ends early and still shows its texts."""


def embedded(data: bytes, *, name: str) -> Embedded | None:
    """The texts that may be graphs in a media file; None when the bytes are no such file.

    Raises:
        Refused: a `WorkflowError`: `not_comfy_metadata` when there are none, `too_large` for a packed
            text beyond any graph.
    """
    kind = kind_of(data)
    if kind is None:
        return None
    if kind.parser is None:
        raise Refused(name, [error("not_comfy_metadata", f"is {kind.words}, which holds no graph", _REMEDY)])
    found, is_cut = _collect(kind, data)
    texts: dict[str, bytes] = {}
    for key in (*_GRAPHS, *_OTHERS):
        if key in found and (key in _GRAPHS or not texts):
            text, damaged = _plain(found[key], name)
            is_cut = is_cut or damaged
            if _JSON_START.match(text):
                texts[key] = text
    if not texts:
        raise Refused(name, [_nothing(kind, found, is_cut=is_cut)])
    return Embedded(kind.words, tuple(texts.items()), (_truncated(kind),) if is_cut else ())


def _collect(kind: MediaKind, data: bytes) -> tuple[dict[str, Text], bool]:
    """The texts under keys that matter, and whether the file is cut. The last one counts, as in editors."""
    found: dict[str, Text] = {}
    if kind.parser is None:
        return found, False
    try:
        for text in kind.parser(memoryview(data)):
            key = text.key.lower()
            if key in _GRAPHS or key in _OTHERS:
                found[key] = text
    except Cut:
        return found, True
    return found, False


def _plain(text: Text, name: str) -> tuple[bytes, bool]:
    """The text in UTF-8, and whether it is damaged."""
    data, damaged = _inflated(text, name) if text.deflated else (bytes(text.data), False)
    if text.encoding.startswith("utf-16"):
        data = data.decode(text.encoding, "replace").encode()
    elif text.encoding == "latin-1" and not _is_utf8(data):  # programs write UTF-8 there as well
        data = data.decode("latin-1").encode()
    return data.strip(b"\0 \r\n\t"), damaged


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _inflated(text: Text, name: str) -> tuple[bytes, bool]:
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(text.data, TEXT_LIMIT_BYTES + 1)
    except zlib.error:
        return b"", True
    if len(data) > TEXT_LIMIT_BYTES:
        message = f"the packed text {text.key!r} has more than {TEXT_LIMIT_BYTES} bytes"
        raise Refused(name, [error("too_large", message, _REMEDY)])
    return data, not unpacker.eof


def _truncated(kind: MediaKind) -> Finding:
    message = f"is {kind.words} that ends early or is damaged"
    return warning("truncated", message, "its graph could be read; get the whole file to be sure of it")


def _nothing(kind: MediaKind, found: dict[str, Text], *, is_cut: bool) -> Finding:
    if "parameters" in found or "usercomment" in found:
        message = f"is {kind.words} with the text of parameters that other programs write, and no graph"
    elif is_cut:
        message = f"is {kind.words} that ends early or is damaged, and shows no graph up to there"
    else:
        message = f"is {kind.words} without a graph: it was never in it, or was lost when it was saved again"
    return error("not_comfy_metadata", message, _REMEDY)
