"""The routes for files: /view, /upload/image, /upload/mask.

Source: facts of ComfyUI 0.27, section 8; [rec: view, upload_image, upload_image_raw_names, upload_mask].
"""

import hashlib
import io
import json
import mimetypes
import os.path
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web
from PIL import Image

from fake_server.comfy.answers import json_answer
from fake_server.comfy.behaviours import VIEW, Behaviour
from fake_server.comfy.conditions import Conditions
from fake_server.comfy.places import Places
from fake_server.comfy.shown_files import ShownFiles
from fake_server.comfy.spoiling import cut, too_long

_SCRIPTABLE = frozenset(
    {
        "text/html",
        "text/html-sandboxed",
        "application/xhtml+xml",
        "text/javascript",
        "application/javascript",
        "text/css",
        "image/svg+xml",
        "application/xml",
        "text/xml",
    }
)
_TYPES = {".webp": "image/webp", ".flac": "audio/flac", ".opus": "audio/ogg", ".glb": "model/gltf-binary"}
_QUALITY = 90


class FileRoutes:
    """Handlers that need the server's folders only."""

    def __init__(self, places: Places, shown_files: ShownFiles, conditions: Conditions) -> None:
        self._places = places
        self._shown_files = shown_files
        self._conditions = conditions

    def routes(self) -> list[web.RouteDef]:
        """The routes that exist bare and under /api."""
        return [
            web.get("/view", self.view),
            web.post("/upload/image", self.upload_image),
            web.post("/upload/mask", self.upload_mask),
        ]

    async def view(self, request: web.Request) -> web.StreamResponse:
        """One file of the input, output or temp folder, or what the script makes of it."""
        query = request.rel_url.query
        key = (query.get("type", "output"), query.get("subfolder", ""), query.get("filename", ""))
        word = self._shown_files.fault(*key) or self._conditions.acts().any_of(VIEW)
        if word is Behaviour.VIEW_404:
            return web.Response(status=404)
        given = self._shown_files.path(*key)
        answer = self._view(query) if given is None else _rendered(given, None, "rgba")
        if word is None or answer.status != HTTPStatus.OK:
            return answer
        if word is Behaviour.VIEW_LONG:
            return await too_long(request, answer)
        return await cut(request, answer, with_reset=word is Behaviour.VIEW_RST)

    def _view(self, query: Mapping[str, str]) -> web.StreamResponse:
        if "filename" not in query:
            return web.Response(status=404)
        name, folder = self._places.annotated(query["filename"])
        if not name or name.startswith("/") or ".." in name:
            return web.Response(status=400)
        if name.startswith("blake3:"):
            raise ValueError("the assets system is off")
        folder = folder or self._places.by_type(query.get("type", "output"))
        if folder is None:
            return web.Response(status=400)
        inside = Path(os.path.normpath(folder / query.get("subfolder", "")))
        if not inside.is_relative_to(folder):
            return web.Response(status=403)
        file = inside / Path(name).name
        if not file.is_file():
            return web.Response(status=404)
        return _rendered(file, query.get("preview"), query.get("channel", "rgba"))

    async def upload_image(self, request: web.Request) -> web.Response:
        """Store a file under a name that is free, or that holds the same content."""
        with _closing(await request.post()) as form:
            return self._store(form, lambda content, path: _write(path, content))

    async def upload_mask(self, request: web.Request) -> web.Response:
        """Store a picture whose alpha channel is the mask's; nothing when the original is missing."""
        form = await request.post()

        def save(content: bytes, path: Path) -> None:
            original = self._original(json.loads(str(form["original_ref"])))
            if original is None:
                return
            with Image.open(original) as image, Image.open(io.BytesIO(content)) as mask:
                masked = image.convert("RGBA")
                masked.putalpha(mask.convert("RGBA").getchannel("A"))
                masked.save(path, compress_level=4)

        with _closing(form):
            return self._store(form, save)

    def _store(self, form: Any, save: Callable[[bytes, Path], None]) -> web.Response:
        image = form.get("image")
        if image is None or (not isinstance(image, str | bytes) and not image.filename):
            return web.Response(status=400)
        kind = form.get("type") or "input"
        root = self._places.by_type(kind)
        if root is None:
            raise ValueError(f"no folder of type {kind}")
        name, subfolder, content = image.filename, form.get("subfolder", ""), image.file.read()
        folder = root / os.path.normpath(subfolder)
        path = Path(os.path.normpath(folder / name))
        if not path.is_relative_to(root):
            return web.Response(status=400)
        folder.mkdir(parents=True, exist_ok=True)
        target: Path | None = path
        if form.get("overwrite") not in {"true", "1"}:
            name, target = _free_name(name, folder, content)
        if target is not None:
            save(content, target)
        return json_answer({"name": name, "subfolder": subfolder, "type": kind})

    def _original(self, reference: dict[str, Any]) -> Path | None:
        name, folder = self._places.annotated(reference["filename"])
        if not name or name.startswith("/") or ".." in name:
            return None
        folder = folder or self._places.by_type(reference.get("type", "output"))
        if folder is None:
            return None
        inside = Path(os.path.normpath(folder / reference.get("subfolder", "")))
        file = inside / name
        return file if inside.is_relative_to(folder) and file.is_file() else None


@contextmanager
def _closing(form: Any) -> Iterator[Any]:
    try:
        yield form
    finally:
        for part in form.values():
            if isinstance(part, web.FileField):
                part.file.close()


def _free_name(name: str, folder: Path, content: bytes) -> tuple[str, Path | None]:
    suffix = Path(name).suffix
    stem = name.removesuffix(suffix)
    path, place = Path(os.path.normpath(folder / name)), 1
    while path.exists():
        if hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest():
            return name, None
        name = f"{stem} ({place}){suffix}"
        path, place = folder / name, place + 1
    return name, path


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _rendered(file: Path, preview: str | None, channel: str) -> web.StreamResponse:
    shown = {"Content-Disposition": f'filename="{file.name}"'}
    if preview is not None:
        return _preview(file, preview, channel, shown)
    if channel in {"rgb", "a"}:
        with Image.open(file) as image:
            body = _encoded(image.convert("RGB") if channel == "rgb" else _alpha(image), "PNG")
        return web.Response(body=body, content_type="image/png", headers=shown)
    kind = _TYPES.get(file.suffix.lower()) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if kind in _SCRIPTABLE:
        kind, shown = (
            "application/octet-stream",
            {"Content-Disposition": f'attachment; filename="{file.name}"'},
        )
    return web.FileResponse(file, headers=shown | {"Content-Type": kind, "X-Content-Type-Options": "nosniff"})


def _preview(file: Path, preview: str, channel: str, shown: dict[str, str]) -> web.Response:
    wanted, *_, last = [*preview.split(";"), preview.split(";")[-1]]
    kind = wanted if wanted in {"webp", "jpeg"} and "a" not in channel.replace("rgba", "") else "webp"
    quality = int(last) if last.isdigit() else _QUALITY
    with Image.open(file) as image:
        picture = image.convert("RGB") if kind == "jpeg" or channel == "rgb" else image
        body = _encoded(picture, kind.upper(), quality=quality)
    return web.Response(body=body, content_type=f"image/{kind}", headers=shown)


def _alpha(image: Image.Image) -> Image.Image:
    has_alpha = image.mode == "RGBA"
    alpha = image.getchannel("A") if has_alpha else Image.new("L", image.size, 255)
    masked = Image.new("RGBA", image.size)
    masked.putalpha(alpha)
    return masked


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()
