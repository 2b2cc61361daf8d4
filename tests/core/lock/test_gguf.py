"""Headers of GGUF files."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.gguf import gguf_summary
from comfyfarm.lock.safetensors import BadHeader


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def made(
    pairs: bytes = b"", count: int = 0, *, tensors: tuple[tuple[str, int, int], ...] = (), room: int = 0
) -> bytes:
    """A file with these values and tensors (name, type, offset), and `room` bytes of weights."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), count) + pairs
    for name, kind, offset in tensors:
        head += text(name) + struct.pack("<IQQIQ", 2, 4, 8, kind, offset)
    return head + bytes(-len(head) % 32) + bytes(room)


def read(data: bytes) -> dict[str, Any]:
    return dict(gguf_summary(lambda at, count: data[at : at + count], len(data)))


PAIRS = (
    text("general.architecture") + struct.pack("<I", 8) + text("flux")
    + text("general.quantization_version") + struct.pack("<II", 4, 2)
    + text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + text("a") + text("bc") + text("")
    + text("nested") + struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ", 4, 2) + bytes(8)
    + struct.pack("<IQ", 0, 1) + b"x"
)  # fmt: skip


def test_a_header_tells_quantizations_and_sizes() -> None:
    data = made(PAIRS, 4, tensors=(("b", 12, 64), ("a", 0, 0), ("c", 99, 96)), room=128)

    assert read(data) == {
        "kind": "gguf",
        "tensors": 3,
        "bytes": 128,
        "dtypes": {
            "F32": {"tensors": 1, "bytes": 64},
            "Q4_K": {"tensors": 1, "bytes": 32},
            "type 99": {"tensors": 1, "bytes": 32},
        },
        "metadata": {"general.architecture": "flux"},
    }


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cut off"),
        (b"GGML" + bytes(20), "does not begin"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**40, 0), "more than any model has"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "cut off"),
        (made(text("x") + struct.pack("<I", 77), 1), "value type 77"),
        (made(text("x") + struct.pack("<IIQ", 9, 8, 2**60), 1), "cut off"),
        (made(text("x") + struct.pack("<IIQ", 9, 4, 2**60), 1), "cut off"),
        (made(tensors=(("a", 0, 64),), room=64), "begins at byte 64 of 64"),
    ],
)
def test_a_file_that_is_cut_off_or_something_else_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadHeader, match=words):
        read(data)


@given(st.data())
def test_a_good_file_cut_or_changed_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(made(PAIRS, 4, tensors=(("a", 0, 0), ("b", 12, 64)), room=128))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        read(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except BadHeader:
        return
