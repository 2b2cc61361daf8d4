"""Whether a file is whole, by its own words: some kinds say how they end, or how long they are."""

from pathlib import Path

_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_TAIL_BYTES = 4096  # something may follow the end
_RIFF_HEAD_BYTES = 8
_UNKNOWN_SIZES = {0, 0xFFFFFFFF}  # written by whoever could not go back to say it


def is_whole(file: Path) -> bool:
    """False for a PNG without its end, or a RIFF file (WebP, WAV, AVI) shorter than it says.

    A wrong `Content-Length` cuts a file without any error, and so does a full disk of a server.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        head = stream.read(_RIFF_HEAD_BYTES)
        if head == _PNG:
            stream.seek(-min(size, _TAIL_BYTES), 2)
            return _PNG_END in stream.read()
        said = int.from_bytes(head[4:], "little")
        if head[:4] == b"RIFF" and said not in _UNKNOWN_SIZES:
            return size >= said + _RIFF_HEAD_BYTES
    return True
