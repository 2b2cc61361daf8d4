"""Small true files of every kind that save nodes write; their content derives from a digest.

Two jobs with different inputs give different bytes; the same digest always gives the same bytes.
"""

import io
import json
import struct
from collections.abc import Mapping

from PIL import Image
from PIL.PngImagePlugin import PngInfo

_GRID = 8
_LONGEST_PX = 256


def picture(digest: str, width: int, height: int) -> Image.Image:
    """A checkerboard of colours. A side longer than 256 pixels is scaled down: files stay small."""
    scale = min(1.0, _LONGEST_PX / max(width, height, 1))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    seed = bytes.fromhex(digest)
    colours = (seed * (3 * _GRID * _GRID // len(seed) + 1))[: 3 * _GRID * _GRID]
    mixed = bytes((value * (place + 1) + place) % 256 for place, value in enumerate(colours))
    return Image.frombytes("RGB", (_GRID, _GRID), mixed).resize(size, Image.Resampling.NEAREST)


def png(digest: str, width: int, height: int, *, texts: Mapping[str, str] | None = None) -> bytes:
    """A PNG with text chunks."""
    info = PngInfo()
    for key, text in (texts or {}).items():
        info.add_text(key, text)
    return _encoded(picture(digest, width, height), "PNG", pnginfo=info, compress_level=4)


def animation(digests: list[str], width: int, height: int, *, kind: str) -> bytes:
    """An animated WEBP or PNG with one frame for each digest."""
    frames = [picture(digest, width, height) for digest in digests]
    return _encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)


def jpeg(digest: str, side_px: int) -> bytes:
    """A square JPEG, as previews are."""
    return _encoded(picture(digest, side_px, side_px), "JPEG", quality=95)


def exr(digest: str) -> bytes:
    """An uncompressed 8 x 8 OpenEXR file of half floats."""
    side = 8
    window = struct.pack("<4i", 0, 0, side - 1, side - 1)
    channels = b"".join(
        name + b"\0" + struct.pack("<iBBBBii", 1, 0, 0, 0, 0, 1, 1) for name in (b"B", b"G", b"R")
    )
    fields = [
        (b"channels", b"chlist", channels + b"\0"),
        (b"compression", b"compression", b"\0"),
        (b"dataWindow", b"box2i", window),
        (b"displayWindow", b"box2i", window),
        (b"lineOrder", b"lineOrder", b"\0"),
        (b"pixelAspectRatio", b"float", struct.pack("<f", 1.0)),
        (b"screenWindowCenter", b"v2f", struct.pack("<2f", 0.0, 0.0)),
        (b"screenWindowWidth", b"float", struct.pack("<f", 1.0)),
    ]
    head = struct.pack("<2i", 20000630, 2)
    head += b"".join(
        name + b"\0" + kind + b"\0" + struct.pack("<i", len(data)) + data for name, kind, data in fields
    )
    head += b"\0"
    seed = bytes.fromhex(digest)
    row = struct.pack(f"<{3 * side}e", *(seed[place % len(seed)] / 255 for place in range(3 * side)))
    lines = [struct.pack("<2i", y, len(row)) + row for y in range(side)]
    table = len(head) + 8 * side
    offsets = struct.pack(f"<{side}Q", *(table + y * len(lines[0]) for y in range(side)))
    return head + offsets + b"".join(lines)


def glb(digest: str) -> bytes:
    """A binary glTF 2.0 with one triangle; the digest stands in its extras."""
    points = struct.pack("<9f", 0, 0, 0, 1, 0, 0, 0, 1, 0)
    document = {
        "asset": {"version": "2.0", "extras": {"digest": digest}},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
        "accessors": [
            {
                "bufferView": 0,
                "componentType": 5126,
                "count": 3,
                "type": "VEC3",
                "min": [0, 0, 0],
                "max": [1, 1, 0],
            }
        ],
        "bufferViews": [{"buffer": 0, "byteLength": len(points)}],
        "buffers": [{"byteLength": len(points)}],
    }
    text = json.dumps(document).encode()
    text += b" " * (-len(text) % 4)
    chunks = (
        struct.pack("<I4s", len(text), b"JSON") + text + struct.pack("<I4s", len(points), b"BIN\0") + points
    )
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def point_cloud(digest: str) -> bytes:
    """A PLY file with one point."""
    lines = [
        "ply",
        "format ascii 1.0",
        f"comment {digest}",
        "element vertex 1",
        "property float x",
        "property float y",
        "property float z",
        "end_header",
        "0 0 0",
    ]
    return ("\n".join(lines) + "\n").encode()


def svg(digest: str) -> bytes:
    """A square in a colour of the digest."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8">'
        f'<rect width="8" height="8" fill="#{digest[:6]}"/><!-- {digest} --></svg>'
    ).encode()


def safetensors(
    digest: str, *, name: str = "latent_tensor", metadata: Mapping[str, str] | None = None
) -> bytes:
    """A safetensors file with one small tensor."""
    data = bytes.fromhex(digest)[:32]
    entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    head = json.dumps({"__metadata__": dict(metadata or {}) | {"digest": digest}, name: entry}).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + data


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()
