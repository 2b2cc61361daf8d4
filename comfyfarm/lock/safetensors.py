"""What the header of a safetensors file says: how many tensors of which type, without reading any.

Source: the format's own description (github.com/huggingface/safetensors): 8 bytes little-endian length,
JSON, then the tensors, which fill the rest of the file without holes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.strict import strict_json

ReadAt = Callable[[int, int], bytes]
"""Takes offset and length in bytes; gives as many bytes as there are, at most that many."""

LIMIT_BYTES = 100 * 1024 * 1024
"""Of a header: what the format's own library takes."""
_LENGTH_BYTES = 8
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_KEPT = {
    "format",
    *(f"modelspec.{name}" for name in (
        "sai_model_spec", "architecture", "implementation", "title", "resolution", "prediction_type",
        "encoder_layer", "timestep_range", "author", "date", "license", "hash_sha256",
    )),
}  # fmt: skip
"""Metadata that tells what a model is. Prompts that merges leave behind are nobody's business."""
_KEPT_CHARS = 200


class BadHeader(Exception):
    """A model file whose header is not what its kind of file has: cut off, or something else altogether."""


def summary(read_at: ReadAt, size_bytes: int) -> dict[str, JsonValue]:
    """What a lock keeps of a safetensors header.

    Args:
        read_at: reads a stretch of the file.
        size_bytes: of the whole file.

    Raises:
        BadHeader: it is none, or does not fit the file.
    """
    header = _header(read_at, size_bytes)
    metadata = header.pop("__metadata__", {})
    tensors = header["tensors"]
    if not isinstance(metadata, dict):
        raise BadHeader("__metadata__ is no object")
    kept: dict[str, JsonValue] = {
        key: value
        for key, value in sorted(metadata.items())
        if key in _KEPT and isinstance(value, str) and len(value) <= _KEPT_CHARS
    }
    found: dict[str, JsonValue] = {
        "kind": "safetensors",
        "tensors": len(tensors),
        "bytes": sum(size for _, size in tensors),
        "dtypes": by_type(tensors),
    }
    return found | ({"metadata": kept} if kept else {})


def by_type(tensors: Iterable[tuple[str, int]]) -> dict[str, JsonValue]:
    """Tensors and bytes of each type, of pairs of type and size in bytes."""
    counts: dict[str, list[int]] = {}
    for kind, size in tensors:
        count = counts.setdefault(kind, [0, 0])
        count[0] += 1
        count[1] += size
    return {kind: {"tensors": n, "bytes": size} for kind, (n, size) in sorted(counts.items())}


def _header(read_at: ReadAt, size_bytes: int) -> dict[str, Any]:
    length = int.from_bytes(_exactly(read_at, 0, _LENGTH_BYTES, size_bytes), "little")
    if length > LIMIT_BYTES or _LENGTH_BYTES + length > size_bytes:
        raise BadHeader(f"the header would be {length} bytes long, in a file of {size_bytes}")
    data = _exactly(read_at, _LENGTH_BYTES, length, size_bytes)
    if not data.startswith(b"{"):
        raise BadHeader("the header does not begin with {")
    try:
        raw = strict_json(data, name="header")
    except Refused as exc:
        raise BadHeader(f"the header is not sound: {exc.findings[0].message}") from exc
    metadata = raw.pop("__metadata__", {})
    return {"__metadata__": metadata, "tensors": _tensors(raw, size_bytes - _LENGTH_BYTES - length)}


def _exactly(read_at: ReadAt, offset: int, length: int, size_bytes: int) -> bytes:
    data = read_at(offset, length)
    if len(data) != length:
        raise BadHeader(f"the header ends after {offset + len(data)} of {size_bytes} bytes")
    return data


def _tensors(raw: Mapping[str, Any], room: int) -> list[tuple[str, int]]:
    """Type and size of each; they must lie one behind the other and fill the room, or the file is cut off."""
    spans: list[tuple[int, int]] = []
    found: list[tuple[str, int]] = []
    for name, tensor in raw.items():
        kind, begin, end = _tensor(name, tensor)
        spans.append((begin, end))
        found.append((kind, end - begin))
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise BadHeader(f"the tensors leave a hole or overlap at byte {at}")
        at = end
    if at != room:
        raise BadHeader(f"the tensors are {at} bytes long, and the file has {room} for them")
    return found


def _tensor(name: str, tensor: Any) -> tuple[str, int, int]:
    match tensor:
        case {"dtype": str(kind), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
            if not all(type(size) is int and size >= 0 for size in shape) or not 0 <= begin <= end:
                raise BadHeader(f"tensor {name[:60]!r} has an impossible shape or place")
            _check_size(name, kind, shape, end - begin)
            return kind, begin, end
    raise BadHeader(f"tensor {name[:60]!r} has no dtype, shape and data_offsets")


def _check_size(name: str, kind: str, shape: list[int], size: int) -> None:
    bits = _BITS.get(kind)
    if bits is None:  # of a later day
        return
    count = 1
    for length in shape:
        count *= length
        if count > 1 << 62:
            raise BadHeader(f"tensor {name[:60]!r} is larger than any memory")
    if -(-count * bits // 8) != size:
        raise BadHeader(f"tensor {name[:60]!r} takes {size} bytes, and its shape another number")
