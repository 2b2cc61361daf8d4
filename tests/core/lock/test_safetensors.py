"""Headers of safetensors files, read strictly and never beyond what is there."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.lock.headers import header_of
from comfyfarm.lock.safetensors import LIMIT_BYTES, BadHeader, summary


def made(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def read(data: bytes, size: int | None = None) -> dict[str, Any]:
    return dict(summary(lambda at, count: data[at : at + count], len(data) if size is None else size))


GOOD = {
    "__metadata__": {
        "format": "pt",
        "modelspec.architecture": "flux-1-dev",
        "prompt": '{"1": {"class_type": "KSampler"}}',
        "workflow": "{}",
        "modelspec.thumbnail": "data:image/jpeg;base64,xxxx",
        "modelspec.title": "t" * 300,
        "ss_tag_frequency": "{}",
    },
    "a": tensor("F16", [2, 3], 0, 12),
    "b": tensor("F8_E4M3", [4], 12, 16),
    "c": tensor("F16", [], 16, 18),
}


def test_a_header_tells_types_and_sizes_and_no_prompts() -> None:
    assert read(made(GOOD, bytes(18))) == {
        "kind": "safetensors",
        "tensors": 3,
        "bytes": 18,
        "dtypes": {"F16": {"tensors": 2, "bytes": 14}, "F8_E4M3": {"tensors": 1, "bytes": 4}},
        "metadata": {"format": "pt", "modelspec.architecture": "flux-1-dev"},
    }


def test_only_the_header_is_read() -> None:
    data = made(GOOD)
    seen: list[tuple[int, int]] = []

    def read_at(at: int, count: int) -> bytes:
        seen.append((at, count))
        return data[at : at + count]

    assert summary(read_at, len(data) + 18)["tensors"] == 3
    assert seen == [(0, 8), (8, len(data) - 8)]


@pytest.mark.parametrize("text", [b"{}", b"{}      "])
def test_a_file_without_tensors_and_padding_are_fine(text: bytes) -> None:
    assert read(made(text))["tensors"] == 0


def test_types_of_a_later_day_are_taken_at_their_word() -> None:
    assert read(made({"a": tensor("F2", [9], 0, 3)}, bytes(3)))["dtypes"] == {
        "F2": {"tensors": 1, "bytes": 3}
    }


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends after 0"),
        (b"1234567", "ends after 7"),
        (struct.pack("<Q", LIMIT_BYTES + 1) + b"{}", "would be 104857601 bytes"),
        (struct.pack("<Q", 2**63) + b"{}", "would be"),
        (struct.pack("<Q", 9) + b"{}", "would be 9 bytes long, in a file of 10"),
        (made(b"b" * 40), "does not begin with {"),
        (made(b'{"a":1'), "not sound"),
        (made(b'{"a":{},"a":{}}'), "occurs twice"),
        (made(b'{"a":NaN}'), "no JSON number"),
        (made(b'{"a":' + b"[" * 9000), "not sound"),
        (made({"a": 1}), "has no dtype"),
        (made({"a": tensor("F16", [1], 2, 0)}), "impossible"),
        (made({"a": tensor("F16", [-1], 0, 2)}, b"xx"), "impossible"),
        (made({"a": tensor("F16", [True], 0, 2)}, b"xx"), "impossible"),
        (made({"a": tensor("F16", [2], 0, 2)}, b"xx"), "takes 2 bytes"),
        (made({"a": tensor("U8", [2**40, 2**40], 0, 2)}, b"xx"), "larger than any memory"),
        (made({"a": tensor("U8", [2], 1, 3)}, b"xxx"), "hole or overlap at byte 0"),
        (made({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"xxx"), "overlap at byte 2"),
        (made({"a": tensor("U8", [2], 0, 2)}, b"x"), "are 2 bytes long, and the file has 1"),
        (made({"a": tensor("U8", [2], 0, 2)}, b"xxx"), "the file has 3"),
        (made({"__metadata__": []}), "__metadata__ is no object"),
    ],
)
def test_a_file_that_is_cut_off_or_something_else_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadHeader, match=words):
        read(data)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_bytes_are_a_header_or_refused(data: bytes, length: int) -> None:
    for raw in (data, struct.pack("<Q", length) + data, made(data)):
        try:
            read(raw)
        except BadHeader:
            continue


@given(st.data())
def test_a_good_file_with_one_byte_changed_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(made(GOOD, bytes(18)))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(raw))
    except BadHeader:
        return
    assert found["bytes"] == 18


@pytest.mark.parametrize("name", ["a.ckpt", "a.pt", "a", "config.json"])
def test_pickles_and_other_files_have_no_header(name: str) -> None:
    assert header_of(name, lambda _at, _count: b"", 0) is None


def test_the_suffix_may_be_in_capitals() -> None:
    data = made({})
    found = header_of("A.SAFETENSORS", lambda at, count: data[at : at + count], len(data))
    assert found == {"kind": "safetensors", "tensors": 0, "bytes": 0, "dtypes": {}}
