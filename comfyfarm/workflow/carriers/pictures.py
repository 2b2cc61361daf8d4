"""WebP, JPEG, SVG and OpenEXR: where each keeps its texts."""

import html

from comfyfarm.workflow.carriers import exif
from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts

_SCAN, _APP1, _COMMENT = 0xDA, 0xE1, 0xFE
_BARE_MARKERS = {0x01, *range(0xD0, 0xDA)}


def webp_texts(data: memoryview) -> Texts:
    """The EXIF texts of a WebP file. Source: RFC 9649, section 2.

    Raises:
        Cut: it is shorter than it says.
    """
    span = Span(data)
    span.skip(4)
    size = span.little(4)
    span.skip(4)
    while span.place < size + 8 - 1:
        kind, length = bytes(span.take(4)), span.little(4)
        chunk = span.take(length)
        if kind == b"EXIF":
            yield from exif.texts(chunk)
        span.skip(min(length % 2, len(span)))


def jpeg_texts(data: memoryview) -> Texts:
    """The EXIF texts and comments of a JPEG file, up to its pixels. Source: ITU-T T.81, annex B.

    Raises:
        Cut: it ends before its pixels.
    """
    span = Span(data)
    span.skip(2)
    while True:
        if span.big(1) != 0xFF:
            raise Cut
        marker = span.big(1)
        if marker == _SCAN:
            return
        if marker in _BARE_MARKERS or marker == 0xFF:
            continue
        segment = span.take(span.big(2) - 2)
        if marker == _APP1 and bytes(segment[:6]) == b"Exif\0\0":
            yield from exif.texts(segment)
        elif marker == _COMMENT:
            yield Text("comment", segment)


def svg_texts(data: memoryview) -> Texts:
    """The JSON in an SVG's `<metadata>`. Source: `SaveSVGNode` of ComfyUI's nodes_images.py.

    Raises:
        Cut: it has no end tag.
    """
    whole = bytes(data)
    start = whole.find(b"<metadata")
    while start >= 0 and (end := whole.find(b"</metadata>", start)) >= 0:
        _, _, inner = whole[start:end].partition(b">")
        yield Text("comment", memoryview(_plain(inner.strip())))
        start = whole.find(b"<metadata", end)
    if b"</svg>" not in whole:
        raise Cut


def _plain(xml: bytes) -> bytes:
    if xml.startswith(b"<![CDATA["):
        return xml.removeprefix(b"<![CDATA[").removesuffix(b"]]>").strip()
    return html.unescape(xml.decode("utf-8", "replace")).encode("utf-8", "replace")


def exr_texts(data: memoryview) -> Texts:
    """The string attributes of an OpenEXR file's header. Source: OpenEXR file layout, "Header".

    Raises:
        Cut: it ends within its header.
    """
    span = Span(data)
    span.skip(8)
    while name := span.until_zero():
        kind = span.until_zero()
        value = span.take(span.little(4))
        if kind == "string":
            yield Text(name, value)
