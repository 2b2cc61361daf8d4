"""What the output nodes write, under which names, and under which keys they report it.

Source: [rec: output_*] of ComfyUI 0.27; SaveGLB's key `3d` from the server's source. The nodes without a
recording follow their nearest relative.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from fake_server.comfy import media, streams
from fake_server.comfy.execute import Call, NodeRaised, Value
from fake_server.comfy.places import SaveSlot, save_slot

Saver = Callable[[Call], dict[str, Any]]
Entry = dict[str, str]

_EXAMPLES = 16


def save(call: Call) -> dict[str, Any] | None:
    """Run an output node: write its files and return its UI output; None when it shows nothing.

    Raises:
        NodeRaised: the file could not be written, with the type and text of the real server.
    """
    saver = SAVERS.get(call.class_type)
    if saver is None:
        return None
    try:
        return saver(call)
    except (OSError, ValueError) as exc:
        # A NUL in a prefix is a ValueError of the file system.
        raise NodeRaised(type(exc).__name__, str(exc)) from exc


def _slot(call: Call, prefix: str | None = None, *, kind: str = "output") -> SaveSlot:
    root = call.places.temp_dir if kind == "temp" else call.places.output_dir
    size = call.source("images", "image")
    if prefix is None:
        prefix = call.text("filename_prefix")
    try:
        return save_slot(prefix, root, width=size.width, height=size.height)
    except (OSError, ValueError):
        raise
    except Exception as exc:  # a bare one, by which save_slot says `outside`
        raise NodeRaised("Exception", str(exc)) from exc


def _write(slot: SaveSlot, name: str, content: bytes, *, kind: str = "output") -> Entry:
    (slot.folder / name).write_bytes(content)
    return {"filename": name, "subfolder": slot.subfolder, "type": kind}


def _frames(value: Value, limit: int = _EXAMPLES) -> list[str]:
    return [
        hashlib.sha256(f"{value.digest}#{place}".encode()).hexdigest()
        for place in range(min(value.count, limit))
    ]


def _pictures(call: Call, source: str, *, prefix: str | None = None, kind: str = "output") -> list[Entry]:
    value = call.source(source)
    slot = _slot(call, prefix, kind=kind)
    texts = call.texts if kind == "output" else {}
    numbers = itertools.count(slot.counter)
    entries = []
    for place, (digest, number) in enumerate(zip(_frames(value, 64), numbers, strict=False)):
        name = f"{slot.name.replace('%batch_num%', str(place))}_{number:05}_.png"
        content = media.png(digest, value.width, value.height, texts=texts)
        entries.append(_write(slot, name, content, kind=kind))
    return entries


def _save_image(call: Call) -> dict[str, Any]:
    return {"images": _pictures(call, "images")}


def _save_image_advanced(call: Call) -> dict[str, Any]:
    if call.text("format") != "exr":
        return _save_image(call)
    slot = _slot(call)
    content = media.exr(call.source("images").digest)
    return {"images": [_write(slot, f"{slot.name}_{slot.counter:05}_.exr", content)]}


def _preview_image(call: Call) -> dict[str, Any]:
    prefix = f"ComfyUI_temp_{call.temp_suffix}"
    return {"images": _pictures(call, "images", prefix=prefix, kind="temp")}


def _preview_mask(call: Call) -> dict[str, Any]:
    prefix = f"ComfyUI_temp_{call.temp_suffix}"
    return {"images": _pictures(call, "mask", prefix=prefix, kind="temp"), "animated": [False]}


def _compare(call: Call) -> dict[str, Any]:
    ui: dict[str, Any] = {}
    for side in ("a", "b"):
        if isinstance(call.inputs.get(f"image_{side}"), Value):
            prefix = f"comfy.compare.{side}_temp_{call.temp_suffix}"
            ui[f"{side}_images"] = _pictures(call, f"image_{side}", prefix=prefix, kind="temp")
    return ui


def _animated(kind: str, suffix: str) -> Saver:
    def saver(call: Call) -> dict[str, Any]:
        value = call.source("images")
        slot = _slot(call)
        content = media.animation(_frames(value), value.width, value.height, kind=kind)
        return {
            "images": [_write(slot, f"{slot.name}_{slot.counter:05}_{suffix}", content)],
            "animated": [True],
        }

    return saver


def _video(make: Callable[[str], bytes], source: str, suffix: str) -> Saver:
    def saver(call: Call) -> dict[str, Any]:
        slot = _slot(call)
        name = f"{slot.name}_{slot.counter:05}_{suffix}"
        return {"images": [_write(slot, name, make(call.source(source).digest))], "animated": [True]}

    return saver


def _audio(make: Callable[[str], bytes], suffix: str) -> Saver:
    def saver(call: Call) -> dict[str, Any]:
        slot = _slot(call)
        name = f"{slot.name}_{slot.counter:05}{suffix}"
        return {"audio": [_write(slot, name, make(call.source("audio").digest))]}

    return saver


_AUDIO: Mapping[str, Saver] = {
    "flac": _audio(streams.flac, ".flac"),
    "mp3": _audio(streams.mp3, ".mp3"),
    "opus": _audio(streams.opus, ".opus"),
    "wav": _audio(streams.wav, ".wav"),
}


def _save_audio_advanced(call: Call) -> dict[str, Any]:
    return _AUDIO.get(call.text("format"), _AUDIO["flac"])(call)


def _preview_audio(call: Call) -> dict[str, Any]:
    slot = _slot(call, f"ComfyUI_temp_{call.temp_suffix}", kind="temp")
    name = f"{slot.name}_{slot.counter:05}.flac"
    return {"audio": [_write(slot, name, streams.flac(call.source("audio").digest), kind="temp")]}


def _single(key: str, make: Callable[[str], bytes], suffix: str) -> Saver:
    def saver(call: Call) -> dict[str, Any]:
        slot = _slot(call)
        name = f"{slot.name}_{slot.counter:05}_{suffix}"
        return {key: [_write(slot, name, make(call.source().digest))]}

    return saver


def _preview_3d(call: Call) -> dict[str, Any]:
    name = call.inputs.get("model_file")
    if not isinstance(name, str):
        name = f"preview3d_{call.digest[:32]}.glb"
        call.places.output_dir.mkdir(parents=True, exist_ok=True)
        (call.places.output_dir / name).write_bytes(media.glb(call.digest))
    return {"result": [name, None, None]}


def _save_text(call: Call) -> dict[str, Any]:
    text = call.text("text")
    slot = _slot(call)
    name = f"{slot.name}_{slot.counter:05}.{call.text('format') or 'txt'}"
    return {"text": [text], "files": [_write(slot, name, text.encode())]}


def _preview_any(call: Call) -> dict[str, Any]:
    return {"text": [call.text("source")]}


def _save_latent(call: Call) -> dict[str, Any]:
    slot = _slot(call)
    content = media.safetensors(call.source("samples").digest, metadata=call.texts)
    return {"latents": [_write(slot, f"{slot.name}_{slot.counter:05}_.latent", content)]}


def _save_model(call: Call) -> dict[str, Any]:
    slot = _slot(call)
    content = media.safetensors(call.digest, name="weight", metadata=call.texts)
    _write(slot, f"{slot.name}_{slot.counter:05}_.safetensors", content)
    return {}


_GLB = _single("3d", media.glb, ".glb")
_PLY = _single("3d", media.point_cloud, ".ply")

SAVERS: Mapping[str, Saver] = {
    "SaveImage": _save_image,
    "SaveImageAdvanced": _save_image_advanced,
    "PreviewImage": _preview_image,
    "MaskPreview": _preview_mask,
    "ImageCompare": _compare,
    "SaveAnimatedWEBP": _animated("WEBP", ".webp"),
    "SaveAnimatedPNG": _animated("PNG", ".png"),
    "SaveVideo": _video(streams.mp4, "video", ".mp4"),
    "SaveWEBM": _video(streams.webm, "images", ".webm"),
    "SaveAudio": _AUDIO["flac"],
    "SaveAudioMP3": _AUDIO["mp3"],
    "SaveAudioOpus": _AUDIO["opus"],
    "SaveAudioAdvanced": _save_audio_advanced,
    "PreviewAudio": _preview_audio,
    "SaveGLB": _GLB,
    "Save3DAdvanced": _GLB,
    "SaveGaussianSplat": _PLY,
    "SavePointCloud": _PLY,
    "Preview3D": _preview_3d,
    "Preview3DAdvanced": _preview_3d,
    "PreviewGaussianSplat": _preview_3d,
    "PreviewPointCloud": _preview_3d,
    "SaveSVGNode": _single("images", media.svg, ".svg"),
    "SaveText": _save_text,
    "PreviewAny": _preview_any,
    "SaveLatent": _save_latent,
    **dict.fromkeys(
        (
            "CLIPSave",
            "CheckpointSave",
            "ImageOnlyCheckpointSave",
            "LoraSave",
            "ModelSave",
            "SaveLoRA",
            "VAESave",
        ),
        _save_model,
    ),
}
