"""What a node does: symbolic values for the graph's inside, true files for what it saves.

A value is a digest of its class, inputs and ancestors, with the few facts that files need. Nothing is
computed, but everything that should make two results differ does.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict

from fake_server.comfy.places import Places

_SIDE_PX = 64
_TEXT_CLASSES = ("String", "Primitive", "Text", "Concatenate")


class Value(BaseModel):
    """What travels along a link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    digest: str
    width: int = _SIDE_PX
    height: int = _SIDE_PX
    count: int = 1
    data: str | int | float | bool | None = None
    """A primitive's plain value, where the node passes one on."""
    blocked: str | None = None
    """No value: what comes by this link does not run; the text is told, unless it is empty."""


class NodeRaised(Exception):
    """A node ended with an exception of this type and text, both as the real server names them."""

    def __init__(self, kind: str, message: str, *, trace: tuple[str, ...] = ()) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message
        self.trace = trace


class Interrupted(Exception):
    """The running prompt was told to stop."""


class Died(BaseException):
    """The worker ends here, as its thread does of a SystemExit; HTTP goes on, and nothing runs any more."""


class Aborted(BaseException):
    """The whole process ends in this node, as it does of a segmentation fault."""


class Reporter(Protocol):
    """What a running node may tell the outside, and where it may be stopped."""

    async def progress(self, value: int, maximum: int, *, preview: bytes | None = None) -> None:
        """Send a step of progress, with an encoded picture if there is one; raises `Interrupted`."""
        ...

    async def progress_text(self, text: str) -> None:
        """Send the binary progress text of the node."""
        ...

    async def wait(self, seconds: float) -> None:
        """Let time pass; raises `Interrupted` within 50 ms of an interrupt."""
        ...

    def stop_if_interrupted(self) -> None:
        """Raise `Interrupted` when the prompt is to stop."""
        ...


class Call:
    """One node to be run: its inputs are plain values, or `Value` where a link comes in."""

    def __init__(
        self,
        *,
        node_id: str,
        class_type: str,
        inputs: Mapping[str, Any],
        digest: str,
        places: Places,
        texts: Mapping[str, str],
        temp_suffix: str,
        reporter: Reporter,
    ) -> None:
        self.node_id = node_id
        self.class_type = class_type
        self.inputs = inputs
        self.digest = digest
        self.places = places
        self.texts = texts
        self.temp_suffix = temp_suffix
        self.reporter = reporter

    def source(self, *names: str) -> Value:
        """The value that comes in by the first of these inputs that is linked, else by any link."""
        linked = {name: value for name, value in self.inputs.items() if isinstance(value, Value)}
        for name in names:
            if name in linked:
                return linked[name]
        return next(iter(linked.values()), Value(digest=self.digest))

    def values(self) -> list[Value]:
        """What comes in by links."""
        return [value for value in self.inputs.values() if isinstance(value, Value)]

    def text(self, name: str) -> str:
        """An input as text, whether it is written in the node or comes in by a link."""
        value = self.inputs.get(name, "")
        if isinstance(value, Value):
            return str(value.data) if value.data is not None else f"value {value.digest[:16]}"
        return str(value)


class Result(BaseModel):
    """What a node hands on, and what it shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    values: tuple[Value, ...]
    ui: dict[str, Any] | None = None
    shown_by: str | None = None
    """The node that computed it: the history names it for every node that takes it from the cache."""


class Expansion(BaseModel):
    """A node becomes a small graph: nodes by their full ids, and the links that are its own outputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: dict[str, dict[str, Any]]
    results: tuple[list[Any], ...]


class Blocker(BaseModel):
    """A node hands on no value, and what depends on it does not run; the text is told, if there is one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str | None = None


NodeOutcome = dict[str, Any] | Expansion | Blocker | None
Behaviour = Callable[[Call], Awaitable[NodeOutcome]]
"""Runs a node of an extra class, and returns its UI output, or what happens instead."""


def digest_of(class_type: str, inputs: Mapping[str, Any], *, changed: str = "") -> str:
    """The identity of a node's result: 64 hex digits, the same for the same class, inputs and ancestors."""
    parts = {
        name: value.model_dump() if isinstance(value, Value) else value
        for name, value in sorted(inputs.items())
    }
    text = json.dumps([class_type, parts, changed], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def values_of(call: Call, slots: int) -> tuple[Value, ...]:
    """The values of the node's output slots."""
    if call.class_type == "ImageToMask" and call.inputs.get("channel") == "alpha":
        # All pictures of this server have three channels.
        raise NodeRaised("IndexError", "index 3 is out of bounds for dimension 3 with size 3")
    template = _template(call)
    return tuple(
        template.model_copy(update={"digest": hashlib.sha256(f"{call.digest}:{slot}".encode()).hexdigest()})
        for slot in range(slots)
    )


def _template(call: Call) -> Value:
    if call.class_type in {"LoadImage", "LoadImageMask", "LoadImageOutput"}:
        return _loaded_picture(call)
    base = call.source("image", "images", "pixels", "samples", "latent_image", "latent", "video")
    update: dict[str, Any] = {"digest": call.digest, "data": None}
    for name, field in (("width", "width"), ("height", "height"), ("batch_size", "count")):
        number = call.inputs.get(name)
        if isinstance(number, Value):
            number = number.data
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            update[field] = number
    if call.class_type in _COUNTS:
        update["count"] = _COUNTS[call.class_type](call)
    if call.class_type.startswith(_TEXT_CLASSES):
        update["data"] = _plain(call)
    return base.model_copy(update=update)


def _plain(call: Call) -> Any:
    if "value" in call.inputs:
        value = call.inputs["value"]
        return value.data if isinstance(value, Value) else value
    texts = [call.text(name) for name in call.inputs if name.startswith(("string", "text"))]
    return call.text("delimiter").join(texts) or None


def _count(call: Call, name: str) -> int:
    """How many pictures come in by a link; of a plain input, the number itself."""
    value = call.inputs.get(name, 0)
    if isinstance(value, Value):
        return value.data if isinstance(value.data, int) else value.count
    return value if isinstance(value, int) else 0


def _taken(call: Call, source: str) -> int:
    start = min(_count(call, "batch_index"), _count(call, source) - 1)
    return max(1, min(_count(call, "length"), _count(call, source) - start))


_COUNTS: Mapping[str, Callable[[Call], int]] = {
    "ImageBatch": lambda call: _count(call, "image1") + _count(call, "image2"),
    "ImageFromBatch": lambda call: _taken(call, "image"),
    "LatentFromBatch": lambda call: _taken(call, "samples"),
    "RepeatImageBatch": lambda call: _count(call, "image") * _count(call, "amount"),
    "RepeatLatentBatch": lambda call: _count(call, "samples") * _count(call, "amount"),
}
"""How many pictures a node hands on, where it is another number than came in."""


def _loaded_picture(call: Call) -> Value:
    path = call.places.input_file(call.text("image"))
    try:
        with Image.open(path) as image:
            return Value(digest=call.digest, width=image.width, height=image.height)
    except UnidentifiedImageError as exc:
        raise NodeRaised("PIL.UnidentifiedImageError", str(exc)) from exc
    except OSError as exc:
        raise NodeRaised(type(exc).__name__, str(exc)) from exc
