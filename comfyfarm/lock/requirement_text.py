"""The text of a requirements file: its encoding, its lines, and how they may be printed."""

import codecs
import re
from collections.abc import Iterator

from comfyfarm.addresses import mask

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)


def decoded(data: bytes) -> str:
    """Some packs were written on Windows, by a shell that writes UTF-16."""
    for bom, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(bom):
            return data.decode(encoding, "replace").removeprefix("\ufeff")
    return data.decode("utf-8", "replace")


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with those joined that a backslash continues, and the number of the first."""
    begun: list[str] = []
    first = 1
    for number, raw in enumerate(text.replace("\0", "").splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not begun:
            first = number
        if line.endswith("\\"):
            begun.append(line[:-1])
            continue
        joined = " ".join([*begun, line]).strip()
        begun = []
        if joined:
            yield first, joined
    if begun:  # a backslash at the end of the file continues nothing
        yield first, " ".join(begun).strip()


def shown(text: str) -> str:
    """As it may be printed: short, and without logins."""
    if "://" not in text:
        return mask(text)[:120]
    return _ADDRESS.sub(lambda found: mask(found[0]), text)[:200]
