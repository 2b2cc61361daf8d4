"""FLAC, Ogg (Vorbis, Opus, FLAC) and MP3: Vorbis comments and ID3 frames.

Source: RFC 9639, section 8.6; RFC 3533; RFC 7845, section 5.2; the ID3v2.3 and v2.4 documents.
"""

import re

from comfyfarm.workflow.carriers.span import Cut, Span, Text, Texts

_VORBIS_COMMENT = 4
_COMMENT_HEADERS = ((b"\x03vorbis", 7), (b"OpusTags", 8))
_OGG_FLAC_HEAD = b"\x7fFLAC"
_LAST_PAGE = 4
_MOST_STREAMS = 64
_ENCODINGS = ("latin-1", "utf-16", "utf-16-be", "utf-8")


def flac_texts(data: memoryview) -> Texts:
    """The Vorbis comments of a FLAC file.

    Raises:
        Cut: it ends within its metadata.
    """
    span = Span(data)
    span.skip(4)
    last = False
    while not last:
        head = span.big(1)
        last = head >= 0x80
        block = span.inner(span.big(3))
        if head & 0x7F == _VORBIS_COMMENT:
            yield from _comments(block)


def _comments(span: Span) -> Texts:
    span.skip(span.little(4))  # the vendor
    for _ in range(span.little(4)):
        size = span.little(4)
        whole = span.take(min(size, len(span)))
        key, equals, _ = bytes(whole[:256]).partition(b"=")
        if len(whole) < size:
            raise Cut
        if equals:
            yield Text(key.decode("latin-1"), whole[len(key) + 1 :])


def ogg_texts(data: memoryview) -> Texts:
    """The Vorbis comments in an Ogg file: the second packet of a stream, across pages.

    Raises:
        Cut: it ends before the last page.
    """
    span = Span(data)
    streams: dict[int, list[bytearray]] = {}
    flags = 0
    try:
        while len(span):
            flags, serial, lengths, body = _page(span)
            if serial not in streams and len(streams) >= _MOST_STREAMS:
                raise Cut
            packets = streams.setdefault(serial, [bytearray()])
            # The head and the comments; what comes after them is sound.
            if len(packets) <= 2 and _collect(packets, lengths, body):
                yield from _packet_comments(packets)
    except Cut:
        for packets in streams.values():
            if len(packets) == 2:
                yield from _packet_comments(packets)
        raise
    if not flags & _LAST_PAGE:
        raise Cut


def _page(span: Span) -> tuple[int, int, bytes, Span]:
    if bytes(span.take(4)) != b"OggS":
        raise Cut
    span.skip(1)
    flags = span.big(1)
    span.skip(8)
    serial = span.little(4)
    span.skip(8)
    lengths = bytes(span.take(span.big(1)))
    return flags, serial, lengths, span.inner(sum(lengths))


def _collect(packets: list[bytearray], lengths: bytes, body: Span) -> bool:
    """Add a page's pieces to the packets; whether the second has come to its end with it."""
    for length in lengths:
        packets[-1] += body.take(length)
        if length < 0xFF:
            packets.append(bytearray())
        if len(packets) > 2:
            return True
    return False


def _packet_comments(packets: list[bytearray]) -> Texts:
    head, packet = packets[0], memoryview(bytes(packets[1]))
    for magic, size in _COMMENT_HEADERS:
        if bytes(packet[:size]) == magic:
            yield from _comments(Span(packet[size:]))
    if head.startswith(_OGG_FLAC_HEAD):
        yield from _comments(Span(packet[4:]))


def mp3_texts(data: memoryview) -> Texts:
    """The texts of an ID3v2 tag, and those of the FLAC file that may follow it.

    Raises:
        Cut: it ends within the tag.
    """
    span = Span(data)
    span.skip(3)
    version, _revision, flags = span.big(1), span.big(1), span.big(1)
    size = _syncsafe(span.big(4))
    yield from _frames(_tag_body(span.inner(size), version, flags), version)
    if bytes(data[10 + size : 14 + size]) == b"fLaC":
        yield from flac_texts(data[10 + size :])


def _tag_body(tag: Span, version: int, flags: int) -> Span:
    if version not in (3, 4):
        return Span(memoryview(b""))
    if flags & 0x40:  # an extended header
        size = tag.big(4)
        tag.skip(_syncsafe(size) - 4 if version == 4 else size)
    if flags & 0x80 and version == 3:  # a zero was put after each 0xFF
        return Span(memoryview(re.sub(b"\xff\0", b"\xff", bytes(tag.rest()))))
    return tag


def _frames(tag: Span, version: int) -> Texts:
    while len(tag) > 10:  # the head of a frame
        kind, size = bytes(tag.take(4)), tag.big(4)
        if kind[0] == 0:
            return  # padding
        flags = tag.big(2)
        frame = tag.inner(_syncsafe(size) if version == 4 else size)
        # Neither packed nor encrypted frames are read: no writer of ours makes them.
        if kind in (b"TXXX", b"COMM") and not flags & 0x00FC:
            yield from _text_frame(kind, frame)


def _text_frame(kind: bytes, frame: Span) -> Texts:
    encoding = _ENCODINGS[frame.big(1) % len(_ENCODINGS)]
    if kind == b"COMM":
        frame.skip(3)  # the language
    wide = encoding.startswith("utf-16")
    key = _wide_key(frame, encoding) if wide else frame.until_zero()
    yield Text("comment" if kind == b"COMM" else key, frame.rest(), encoding)


def _wide_key(frame: Span, encoding: str) -> str:
    units = bytearray()
    while len(units) < 512 and (unit := bytes(frame.take(2))) != b"\0\0":
        units += unit
    return units.decode(encoding, "replace")


def _syncsafe(number: int) -> int:
    """A size of which each byte holds seven bits."""
    return sum((number >> 8 * place & 0x7F) << 7 * place for place in range(4))
