"""EXIF: the texts `key:{…}` that ComfyUI puts under Model, Make and the tags below, and user comments.

Source: Exif 2.32, section 4.6; `_create_webp_metadata` of ComfyUI's comfy_api/latest/_ui.py.
"""

import re
from typing import Literal

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts

_MOST_ENTRIES = 500
_ASCII, _UNDEFINED, _BYTE = 2, 7, 1
_DESCRIPTION, _EXIF_FOLDER, _USER_COMMENT = 0x010E, 0x8769, 0x9286
_KEYED = re.compile(rb"([A-Za-z_][\w. -]{0,60}):")
_CHARSET_BYTES = 8
_PREFIX = b"Exif\0\0"


def texts(data: memoryview) -> Texts:
    """The texts of an EXIF block, with or without its `Exif` prefix.

    Raises:
        Cut: it points beyond its end.
    """
    if bytes(data[: len(_PREFIX)]) == _PREFIX:
        data = data[len(_PREFIX) :]
    order = _order(data)
    yield from _folder(Span(data), int.from_bytes(Span(data).at(4, 4), order), order, depth=0)


def _order(data: memoryview) -> Literal["little", "big"]:
    match bytes(data[:4]):
        case b"II*\0":
            return "little"
        case b"MM\0*":
            return "big"
    raise Cut


def _folder(span: Span, place: int, order: Literal["little", "big"], *, depth: int) -> Texts:
    count = int.from_bytes(span.at(place, 2), order)
    for number in range(min(count, _MOST_ENTRIES)):
        entry = span.at(place + 2 + 12 * number, 12)
        tag, kind = (int.from_bytes(entry[at : at + 2], order) for at in (0, 2))
        size, value = (int.from_bytes(entry[at : at + 4], order) for at in (4, 8))
        if tag == _EXIF_FOLDER and depth == 0:
            yield from _folder(span, value, order, depth=1)
        elif kind in (_ASCII, _UNDEFINED, _BYTE):
            data = entry[8 : 8 + size] if size <= 4 else span.at(value, size)
            yield from _comment(data) if tag == _USER_COMMENT else _keyed(tag, data)


def _keyed(tag: int, data: memoryview) -> Texts:
    found = _KEYED.match(bytes(data[:64]))
    if found is not None:
        yield Text(found[1].decode(), data[found.end() :])
    elif tag == _DESCRIPTION:
        yield Text("description", data)


def _comment(data: memoryview) -> Texts:
    """What other programs write: their parameters as lines, or a graph as JSON."""
    charset, text = bytes(data[:_CHARSET_BYTES]), data[_CHARSET_BYTES:]
    if charset != b"UNICODE\0":
        yield Text("usercomment", text)
    elif bytes(text[:1]) == b"\0":
        yield Text("usercomment", text, "utf-16-be")
    else:
        yield Text("usercomment", text, "utf-16-le")
