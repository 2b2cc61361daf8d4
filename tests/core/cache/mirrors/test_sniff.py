"""What is no model, by its first bytes."""

from pathlib import Path

import pytest

from comfyfarm.cache.mirrors.sniff import refuse_what_is_no_model, what_else
from comfyfarm.errors import InputError

_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 12345\n"


@pytest.mark.parametrize(
    ("head", "word"),
    [
        (_POINTER, "pointer"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\xef\xbb\xbf\r\n <HTML lang=en>", "web page"),
        (b"<html", "web page"),
    ],
)
def test_a_page_and_a_pointer_are_told(head: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(head)
    with pytest.raises(InputError, match=f"shown: is a .*{word}"):
        refuse_what_is_no_model(tmp_path / "file", shown="shown")


@pytest.mark.parametrize(
    "head", [b"", b"PK\x03\x04", b'\x08\x00\x00\x00\x00\x00\x00\x00{"a":1}', b"GGUF", b"<h"]
)
def test_anything_else_may_be_a_model(head: bytes) -> None:
    assert what_else(head) is None
