"""Which bytes of a file a request asks for. Pure. Source: RFC 9110, sections 13.1 and 14."""

import re

_ONE_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


def wanted_bytes(header: str | None, size: int) -> range | None:
    """The bytes to send; empty when the range lies outside the file, None for the whole file.

    What is no single range of bytes is as good as absent, as the RFC allows.
    """
    found = _ONE_RANGE.fullmatch(header.strip()) if header else None
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return range(max(size - int(last), 0), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(int(last) + 1, size) if last else size)


def is_match(header: str | None, etag: str) -> bool:
    """Whether an `If-Match` lets the request pass: absent, `*`, or our tag among its own."""
    return header is None or header.strip() == "*" or etag in (tag.strip() for tag in header.split(","))
