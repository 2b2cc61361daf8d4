"""Whether a file is whole, by its own words: some kinds say how they end, or how long they are."""

import re
from pathlib import Path

_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82"
_PICTURES = (".png", ".apng", ".jpg", ".jpeg", ".webp", ".gif", ".avif", ".tif", ".tiff", ".bmp", ".exr")
_FILMS = (".mp4", ".webm", ".mkv", ".mov", ".avi", ".flac", ".mp3", ".wav", ".ogg", ".opus", ".m4a")
_OTHERS = (".glb", ".ply", ".stl", ".fbx", ".usdz", ".safetensors", ".latent")
_MEDIA = (*_PICTURES, *_FILMS, *_OTHERS)
_PAGE_BYTES = 256
_PAGE = re.compile(rb"\s*<(!doctype|html|head|body|\?xml)", re.IGNORECASE)
_TAIL_BYTES = 4096  # something may follow the end
_RIFF_HEAD_BYTES = 8
_UNKNOWN_SIZES = {0, 0xFFFFFFFF}  # written by whoever could not go back to say it


def is_whole(file: Path, *, name: str = "") -> bool:
    """False for a PNG without its end, or a RIFF file (WebP, WAV, AVI) shorter than it says.

    A wrong `Content-Length` cuts a file without any error, and so does a full disk of a server. Where `name`
    is that of a picture, a film or a sound, a page or nothing at all is what a proxy in trouble gives.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(_PAGE_BYTES)
        if name.lower().endswith(_MEDIA) and (not size or _PAGE.match(start)):
            return False
        head = start[:_RIFF_HEAD_BYTES]
        if head == _PNG:
            stream.seek(-min(size, _TAIL_BYTES), 2)
            return _PNG_END in stream.read()
        said = int.from_bytes(head[4:], "little")
        if head[:4] == b"RIFF" and said not in _UNKNOWN_SIZES:
            return size >= said + _RIFF_HEAD_BYTES
    return True
