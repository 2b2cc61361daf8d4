"""MP4 and QuickTime: `moov/meta` with named keys, as `movflags=use_metadata_tags` writes them, and `udta`.

Source: ISO/IEC 14496-12, section 4.2; QuickTime File Format, "Metadata" and "User data atoms".
"""

from collections.abc import Iterator

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts, short

_UTF16 = 2
_NAMES = {b"\xa9cmt": "comment", b"\xa9des": "description", b"desc": "description"}
_MOST_KEYS = 10_000


def texts(data: memoryview) -> Texts:
    """The tags of a film.

    Raises:
        Cut: it ends within a box, or before `moov`, which many writers put last.
    """
    is_whole = False
    for kind, box in _boxes(Span(data)):
        is_whole = is_whole or kind in (b"moov", b"meta")  # the second in AVIF and HEIC
        if kind == b"moov":
            yield from _movie(box)
    if not is_whole:
        raise Cut


def _boxes(span: Span) -> Iterator[tuple[bytes, Span]]:
    while len(span) >= 8:  # some writers end a list of boxes with four zero bytes
        size, kind = span.big(4), bytes(span.take(4))
        if size == 1:
            size = span.big(8) - 8
        elif size == 0:
            size = len(span) + 8
        yield kind, span.inner(size - 8)


def _movie(moov: Span) -> Texts:
    for kind, box in _boxes(moov):
        if kind == b"meta":
            yield from _meta(box)
        elif kind == b"udta":
            yield from _user_data(box)


def _user_data(udta: Span) -> Texts:
    for kind, box in _boxes(udta):
        if kind == b"meta":
            yield from _meta(box)
        elif kind in _NAMES and len(box) >= 4:  # length and language come first
            size = box.big(2)
            box.skip(2)
            yield Text(_NAMES[kind], box.take(min(size, len(box))))


def _meta(meta: Span) -> Texts:
    # In MP4 four bytes of version and flags come first, in QuickTime they do not.
    if bytes(meta.at(4, 4)) != b"hdlr":
        meta.skip(4)
    keys: list[str] = []
    for kind, box in _boxes(meta):
        if kind == b"keys":
            keys = list(_keys(box))
        elif kind == b"ilst":
            yield from _items(box, keys)


def _keys(box: Span) -> Iterator[str]:
    box.skip(4)
    for _ in range(min(box.big(4), _MOST_KEYS)):
        size = box.big(4)
        box.skip(4)
        yield short(box.take(size - 8))


def _items(ilst: Span, keys: list[str]) -> Texts:
    for kind, item in _boxes(ilst):
        number = int.from_bytes(kind, "big")
        key = keys[number - 1] if 1 <= number <= len(keys) else _NAMES.get(kind, "")
        for part, box in _boxes(item):
            if part == b"name":  # of a `----` item, after `mean` and before `data`
                box.skip(4)
                key = short(box.rest())
            elif part == b"data":
                encoding = "utf-16-be" if box.big(4) == _UTF16 else "utf-8"
                box.skip(4)
                yield Text(key, box.rest(), encoding)
