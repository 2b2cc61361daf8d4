"""What the header of a GGUF file says: how many tensors of which quantization, without reading any.

Source: the format's description (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3.
"""

import struct
from collections.abc import Mapping

from pydantic import JsonValue

from comfyfarm.lock.safetensors import LIMIT_BYTES, BadHeader, ReadAt, by_type

MAGIC = b"GGUF"
_CHUNK_BYTES = 1 << 20
_MOST_TENSORS = 1_000_000
_MOST_PAIRS = 100_000
_MOST_DIMENSIONS = 8
_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K",
    11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
    19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32",
    27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0",
}  # fmt: skip
_KEPT = {"general.architecture", "general.name"}
_KEPT_CHARS = 200


def gguf_summary(read_at: ReadAt, size_bytes: int) -> dict[str, JsonValue]:
    """What a lock keeps of a GGUF header. Sizes include the few bytes between one tensor and the next.

    Raises:
        BadHeader: it is none, or does not fit the file.
    """
    cursor = _Cursor(read_at, size_bytes)
    if cursor.take(4) != MAGIC:
        raise BadHeader("the file does not begin with GGUF")
    version = cursor.number(4)
    if version not in {2, 3}:
        raise BadHeader(f"GGUF version {version} is not known")
    tensors, pairs = cursor.number(8), cursor.number(8)
    if tensors > _MOST_TENSORS or pairs > _MOST_PAIRS:
        raise BadHeader(f"{tensors} tensors and {pairs} values are more than any model has")
    metadata, alignment = _metadata(cursor, pairs)
    places = [_place(cursor) for _ in range(tensors)]
    room = size_bytes - -(-cursor.at // alignment) * alignment
    sized = _sized(places, max(room, 0))
    found: dict[str, JsonValue] = {
        "kind": "gguf",
        "tensors": tensors,
        "bytes": sum(size for _, size in sized),
        "dtypes": by_type(sized),
    }
    return found | ({"metadata": metadata} if metadata else {})


class _Cursor:
    """Reads on through the header, a stretch at a time, and never far beyond it."""

    def __init__(self, read_at: ReadAt, size_bytes: int) -> None:
        self._read_at = read_at
        self._end = min(size_bytes, LIMIT_BYTES)
        self._buffer = b""
        self._start = 0
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        begin = self.at - self._start
        if begin + count > len(self._buffer):
            self._fill(count)
            begin = 0
        self.at += count
        return self._buffer[begin : begin + count]

    def number(self, count: int) -> int:
        """The next bytes as a number without sign."""
        return int.from_bytes(self.take(count), "little")

    def text(self) -> bytes:
        """The next string."""
        return self.take(self.number(8))

    def skip(self, count: int) -> None:
        """Leave out bytes; those that are far away are not read."""
        if self.at + count > self._end:
            raise BadHeader("the header is cut off, or longer than any")
        self.at += count
        if self.at - self._start > len(self._buffer):
            self._buffer, self._start = b"", self.at

    def _fill(self, count: int) -> None:
        if self.at + count > self._end:
            raise BadHeader("the header is cut off, or longer than any")
        self._buffer = self._read_at(self.at, min(max(count, _CHUNK_BYTES), self._end - self.at))
        self._start = self.at
        if len(self._buffer) < count:
            raise BadHeader("the header is cut off")


def _metadata(cursor: _Cursor, pairs: int) -> tuple[dict[str, JsonValue], int]:
    kept: dict[str, JsonValue] = {}
    alignment = _ALIGNMENT
    for _ in range(pairs):
        key = cursor.text().decode("utf-8", "replace")
        kind = cursor.number(4)
        if kind == _STRING and key in _KEPT:
            kept[key] = cursor.text()[:_KEPT_CHARS].decode("utf-8", "replace")
        elif key == "general.alignment" and kind == 4:
            alignment = max(cursor.number(4), 1)
        else:
            _skip_value(cursor, kind)
    return kept, alignment


def _skip_value(cursor: _Cursor, kind: int) -> None:
    """Values may be arrays of arrays; a stack of what is left keeps the depth from being ours."""
    left = [(kind, 1)]
    while left:
        kind, count = left.pop()
        if kind in _SCALAR_BYTES:
            cursor.skip(_SCALAR_BYTES[kind] * count)
        elif kind == _STRING:
            for _ in range(count):
                cursor.skip(cursor.number(8))
        elif kind == _ARRAY:
            if count > 1:
                left.append((kind, count - 1))
            left.append((cursor.number(4), cursor.number(8))) if count else None
        else:
            raise BadHeader(f"value type {kind} is not known")


def _place(cursor: _Cursor) -> tuple[int, str]:
    """Offset and type of the next tensor."""
    cursor.skip(cursor.number(8))
    dimensions = cursor.number(4)
    if dimensions > _MOST_DIMENSIONS:
        raise BadHeader(f"a tensor of {dimensions} dimensions")
    cursor.skip(8 * dimensions)
    kind, (offset,) = cursor.number(4), struct.unpack("<Q", cursor.take(8))
    return offset, _TYPES.get(kind, f"type {kind}")


def _sized(places: list[tuple[int, str]], room: int) -> list[tuple[str, int]]:
    """Each tensor goes on to where the next one begins."""
    ordered = sorted(places)
    ends = [*(offset for offset, _ in ordered[1:]), room]
    if ordered and ordered[-1][0] >= room:
        raise BadHeader(f"a tensor begins at byte {ordered[-1][0]} of {room}: the file is cut off")
    return [(kind, end - offset) for (offset, kind), end in zip(ordered, ends, strict=True)]
