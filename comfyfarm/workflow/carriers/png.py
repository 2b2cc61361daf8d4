"""PNG and APNG: the chunks tEXt, zTXt and iTXt, and ComfyUI's private `comf` after an animation's frames.

Source: PNG specification, third edition, section 11.3.3; `_create_animated_png_metadata` of ComfyUI's
comfy_api/latest/_ui.py.
"""

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts

MAGIC = b"\x89PNG\r\n\x1a\n"
_CRC_BYTES = 4


def texts(data: memoryview) -> Texts:
    """The texts of a PNG file.

    Raises:
        Cut: it ends before its end chunk.
    """
    span = Span(data)
    span.skip(len(MAGIC))
    while True:
        size, kind = span.big(4), bytes(span.take(4))
        if kind == b"IEND":
            return
        chunk = span.inner(size)
        read = _READERS.get(kind)
        if read is not None:
            yield read(chunk)
        span.skip(_CRC_BYTES)


def _plain(chunk: Span) -> Text:
    return Text(chunk.until_zero(), chunk.rest(), "latin-1")


def _packed(chunk: Span) -> Text:
    key, method = chunk.until_zero(), chunk.big(1)
    if method != 0:
        raise Cut
    return Text(key, chunk.rest(), "latin-1", deflated=True)


def _international(chunk: Span) -> Text:
    key, packed, _method = chunk.until_zero(), chunk.big(1), chunk.big(1)
    chunk.until_zero()  # the language
    chunk.until_zero()  # the key in that language
    return Text(key, chunk.rest(), deflated=packed == 1)


_READERS = {b"tEXt": _plain, b"comf": _plain, b"zTXt": _packed, b"iTXt": _international}
