"""WebM and Matroska: the SimpleTags below Segment/Tags.

Source: RFC 9559, section 5.1.8; RFC 8794, section 4 (variable-size integers, unknown sizes).
"""

from collections.abc import Iterator

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts, short

MAGIC = b"\x1a\x45\xdf\xa3"
_SEGMENT, _CLUSTER, _TAGS, _TAG, _SIMPLE = 0x18538067, 0x1F43B675, 0x1254C367, 0x7373, 0x67C8
_NAME, _STRING = 0x45A3, 0x4487


def texts(data: memoryview) -> Texts:
    """The tags of a film.

    Raises:
        Cut: it ends within an element.
    """
    # Segment is entered, not cut out: the one of a file that is cut still shows the tags before the cut.
    span = Span(data)
    is_cut = False
    while len(span):
        kind, size = _head(span)
        is_cut = is_cut or (kind == _SEGMENT and (size or 0) > len(span))
        if kind == _SEGMENT or (kind == _CLUSTER and size is None):
            continue
        if size is None:
            raise Cut
        if kind == _TAGS:
            yield from _tags(span.inner(size))
        else:
            span.skip(size)
    if is_cut:
        raise Cut


def _head(span: Span) -> tuple[int, int | None]:
    """Id and size of the next element; None when the writer did not know the size."""
    return _id(span), _size(span)


def _id(span: Span) -> int:
    first = span.big(1)
    length = 9 - first.bit_length()
    if length > 4:  # ids have up to four bytes
        raise Cut
    return first << 8 * (length - 1) | span.big(length - 1)


def _size(span: Span) -> int | None:
    first = span.big(1)
    length = 9 - first.bit_length()
    if length > 8:  # sizes have up to eight bytes
        raise Cut
    bits = 7 * length
    value = (first << 8 * (length - 1) | span.big(length - 1)) & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value


def _elements(span: Span) -> Iterator[tuple[int, Span]]:
    while len(span):
        kind, size = _head(span)
        if size is None:
            raise Cut
        yield kind, span.inner(size)


def _tags(tags: Span) -> Texts:
    for kind, tag in _elements(tags):
        if kind == _TAG:
            for inner, simple in _elements(tag):
                if inner == _SIMPLE:
                    yield from _simple_tag(simple)


def _simple_tag(simple: Span) -> Texts:
    key = ""
    for kind, part in _elements(simple):
        if kind == _NAME:
            key = short(part.rest())
        elif kind == _STRING:
            yield Text(key, part.rest())
