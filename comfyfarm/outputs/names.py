"""Finished files under safe relative names, whatever a server calls them.

A name that had to be changed carries a hash of the original, so that two originals never become one file.
"""

import hashlib
import re
import unicodedata
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.ids import Sha256

MAX_PART_BYTES = 150
"""Of one folder or file name in UTF-8: well below the 255 of common file systems."""
MAX_PATH_BYTES = 700
"""Of the whole; an S3 key holds 1024 bytes, with the store's prefix and the job id."""
PROVENANCE = "provenance.json"
"""Lies beside the files of each job, so no file may have this name."""

_FORBIDDEN = re.compile(r'[<>:"|?*/\\]')
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?")
_SUFFIX = re.compile(r"\.[^.\s]{1,15}$")


class SpooledFile(BaseModel):
    """One output of a job, downloaded and hashed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    """Relative to the job, safe (`safe_relative`)."""
    local: Path
    """Where it lies on this machine."""
    sha256: Sha256
    size: NonNegativeInt
    """Bytes."""


def safe_relative(subfolder: str, name: str) -> str:
    """`subfolder/name` as a relative path with `/`, fit for every common file system and for S3 keys.

    Both separators count in `subfolder`, since a server on Windows reports backslashes; in `name` neither
    does. Unicode is kept, in NFC.
    """
    original = [*_folders(subfolder), name]
    parts = [_safe_part(part) for part in original]
    if len(parts) == 1 and parts[0].casefold() == PROVENANCE:
        parts[0] = f"_{parts[0]}"
    if len("/".join(parts).encode()) > MAX_PATH_BYTES:
        parts = parts[-1:]
    if parts != original:
        parts[-1] = _marked(parts[-1], "/".join(original))
    return "/".join(parts)


def _folders(subfolder: str) -> list[str]:
    return [part for part in re.split(r"[/\\]", subfolder) if part not in {"", "."}]


def _safe_part(part: str) -> str:
    text = "".join("_" if unicodedata.category(char) in _UNPRINTABLE else char for char in part)
    text = _FORBIDDEN.sub("_", unicodedata.normalize("NFC", text)).strip(" ").rstrip(". ")
    if not text or text.startswith("..") or _RESERVED.fullmatch(text):
        text = f"_{text}"
    return _shortened(text, MAX_PART_BYTES)


_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def _marked(part: str, original: str) -> str:
    mark = "~" + hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    stem, suffix = _split(part)
    return _shortened(stem, MAX_PART_BYTES - len(mark) - len(suffix.encode())) + mark + suffix


def _shortened(part: str, limit_bytes: int) -> str:
    if len(part.encode()) <= limit_bytes:
        return part
    stem, suffix = _split(part)
    room = limit_bytes - len(suffix.encode())
    return stem.encode()[:room].decode(errors="ignore").rstrip(". ") + suffix


def _split(part: str) -> tuple[str, str]:
    found = _SUFFIX.search(part)
    return (part[: found.start()], found[0]) if found and found.start() else (part, "")
