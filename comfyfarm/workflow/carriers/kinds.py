"""Which kind of file some bytes are, by what they begin with and never by a name."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from comfyfarm.workflow.carriers import matroska, models, mp4, pictures, png, sounds
from comfyfarm.workflow.carriers.span import Texts

Parser: TypeAlias = Callable[[memoryview], Texts]


class MediaKind(NamedTuple):
    """A kind of file that is no JSON."""

    words: str
    """For messages: `a PNG picture`."""
    parser: Parser | None = None
    """None for one that ComfyUI puts no workflow into."""


_BEGINNINGS = (
    (b"\x89PNG", MediaKind("a PNG picture", png.texts)),
    (b"\xff\xd8\xff", MediaKind("a JPEG picture", pictures.jpeg_texts)),
    (b"\x76\x2f\x31\x01", MediaKind("an OpenEXR picture", pictures.exr_texts)),
    (matroska.MAGIC, MediaKind("a WebM or Matroska film", matroska.texts)),
    (b"fLaC", MediaKind("a FLAC sound", sounds.flac_texts)),
    (b"OggS", MediaKind("an Ogg sound", sounds.ogg_texts)),
    (b"ID3", MediaKind("an MP3 sound", sounds.mp3_texts)),
    (b"glTF", MediaKind("a GLB model", models.glb_texts)),
    (b"GIF8", MediaKind("a GIF picture")),
    (b"BM", MediaKind("a BMP picture")),
    (b"II*\0", MediaKind("a TIFF picture")),
    (b"MM\0*", MediaKind("a TIFF picture")),
    (b"PK\x03\x04", MediaKind("a zip archive")),
    (b"\x1f\x8b", MediaKind("a gzip archive")),
    (b"%PDF", MediaKind("a PDF document")),
)
_WEBP = MediaKind("a WebP picture", pictures.webp_texts)
_RIFF = MediaKind("a WAV sound or AVI film")
_FILM = MediaKind("an MP4 or QuickTime film", mp4.texts)
_SVG = MediaKind("an SVG picture", pictures.svg_texts)
_SAFETENSORS = MediaKind("a safetensors file", models.safetensors_texts)
_MP3 = MediaKind("an MP3 or AAC sound")
_BOXES = {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"}
_SOUND_FRAMES = {b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2", b"\xff\xf1", b"\xff\xf9"}
_XML_HEAD_BYTES = 4096


def kind_of(data: bytes) -> MediaKind | None:
    """The kind of a file; None for what may be JSON."""
    for magic, kind in _BEGINNINGS:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF":
        return _WEBP if data[8:12] in (b"WEBP", b"") else _RIFF
    if data[4:8] in _BOXES:
        return _FILM
    if data[5:9] == b"\0\0\0{":  # the size of a header of less than a terabyte, then the header
        return _SAFETENSORS
    if data[:2] in _SOUND_FRAMES:
        return _MP3
    head = data[:_XML_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    return _SVG if head.startswith(b"<") and b"<svg" in head else None
