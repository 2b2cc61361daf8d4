"""A batch at a glance: small pictures of its outputs, in one page of Markdown."""

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from comfyfarm.outputs.names import SpooledFile

EDGE_PX = 128
_LIMIT_BYTES = 180_000  # an artifact lies in Prefect's database: it stays small
_ROW = 6
_PIXELS = 200_000_000  # a picture beyond that is not opened for a thumbnail


def thumbnail(files: Iterable[SpooledFile]) -> bytes | None:
    """A JPEG of at most `EDGE_PX` pixels of the first file that is a picture; None without one."""
    for file in files:
        picture = _picture(file.local)
        if picture is not None:
            return picture
    return None


def _picture(path: Path) -> bytes | None:
    try:
        with Image.open(path) as image:
            if image.width * image.height > _PIXELS:
                return None
            shown = _eight_bit(image)
            shown.thumbnail((EDGE_PX, EDGE_PX))
            small = io.BytesIO()
            shown.convert("RGB").save(small, "JPEG", quality=70)
            return small.getvalue()
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        return None


def _eight_bit(image: Image.Image) -> Image.Image:
    """Pictures of 16 bits of grey cannot be made small, and would be cut to white."""
    if image.mode == "I" or image.mode.startswith("I;16"):
        return image.convert("I").point(lambda grey: grey / 256).convert("L")
    return image


def contact_sheet(pictures: Sequence[tuple[str, bytes]]) -> str:
    """Markdown with one table of pictures, each under its label; as many as an artifact should hold."""
    cells, used = [], 0
    for label, jpeg in pictures:
        used += len(jpeg) * 4 // 3
        if used > _LIMIT_BYTES:
            break
        data = base64.b64encode(jpeg).decode()
        cells.append(f'<img width="{EDGE_PX}" src="data:image/jpeg;base64,{data}"><br>{label}')
    left = len(pictures) - len(cells)
    rows = [cells[start : start + _ROW] for start in range(0, len(cells), _ROW)]
    columns = min(_ROW, len(cells))
    table = [f"|{'|'.join(' ' * columns)}|", f"|{'|'.join(['---'] * columns)}|"] if cells else []
    table += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*table, *([f"\n{left} more are not shown."] if left else [])])
