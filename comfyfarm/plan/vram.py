"""How much VRAM a lock's models need at least: an estimate from what the headers of their files say.

ComfyUI holds what one step needs and may unload the rest, so what counts is the largest step, not the sum:

    text:    the largest text encoder (`text_encoders`, `clip_vision`, `audio_encoders`)
    model:   the largest of `checkpoints` and `diffusion_models`, with the largest of what is loaded beside
             it, of each kind (`controlnet`, `model_patches`, `ipadapter`, `gligen`, `style_models`)
    picture: the largest of `vae`, `upscale_models`, `latent_upscale_models`, `frame_interpolation`

and to the largest step `ALLOWANCE_BYTES` is added for what is computed. LoRAs are merged into the weights and
add nothing. 32 and 64 bit weights count as 16 bit, as which ComfyUI loads them by default; all others as they
are stored. Files without a header (pickles) count with their size. Larger pictures and videos need more, and
`--lowvram` streams weights from memory and needs less: it is an estimate, and says so.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, NonNegativeInt

from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.workflow.folders import modern
from comfyfarm.workflow.model_files import WEIGHTS

ALLOWANCE_BYTES: Final = int(0.8 * 2**30) + 400 * 2**20
"""What ComfyUI keeps free beside the weights. Source: `minimum_inference_memory` in 0.25, on Linux."""

_TEXT = ("text_encoders", "clip_vision", "audio_encoders")
_MAIN = ("checkpoints", "diffusion_models")
_BESIDE = ("controlnet", "model_patches", "ipadapter", "gligen", "style_models")
_PICTURE = ("vae", "upscale_models", "latent_upscale_models", "frame_interpolation")
_SHRINKS: Mapping[str, int] = {"F32": 2, "F64": 4}
"""By how much weights of a type shrink when they are loaded as 16 bit."""


class VramEstimate(BaseModel):
    """What has to be in VRAM at once, at least."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: NonNegativeInt
    """Of the largest step, allowance included; 0 when the lock has no such models."""
    stage: str
    """The step: `text`, `model`, `picture`, or `none`."""
    models: tuple[str, ...]
    """The files that are loaded in it, `folder/path`."""
    unknown: tuple[str, ...] = ()
    """Files of these kinds that had to be taken by their size."""


def estimate_vram(models: Iterable[LockedModel]) -> VramEstimate:
    """The estimate for a lock's models."""
    largest = _largest_of_each(models)
    stages = {
        "text": _largest(largest, _TEXT)[:1],
        "model": [*_largest(largest, _MAIN)[:1], *_largest(largest, _BESIDE)],
        "picture": _largest(largest, _PICTURE)[:1],
    }
    name, needed = max(stages.items(), key=lambda item: sum(map(weight_bytes, item[1])))
    if not needed:
        return VramEstimate(bytes=0, stage="none", models=())
    return VramEstimate(
        bytes=sum(map(weight_bytes, needed)) + ALLOWANCE_BYTES,
        stage=name,
        models=tuple(model.title for model in needed),
        unknown=tuple(model.title for model in needed if _dtypes(model) is None),
    )


def weight_bytes(model: LockedModel) -> int:
    """How large a file's weights are once they are loaded."""
    dtypes = _dtypes(model)
    if dtypes is None:
        return model.size
    return sum(size // _SHRINKS.get(kind, 1) for kind, size in dtypes.items())


def _dtypes(model: LockedModel) -> dict[str, int] | None:
    """Bytes by type, where the lock has a header that can be believed."""
    header = model.header
    found = header.get("dtypes") if isinstance(header, dict) else None
    if not isinstance(found, dict) or not found:
        return None
    sizes: dict[str, int] = {}
    for kind, count in found.items():
        size = count.get("bytes") if isinstance(count, dict) else None
        if type(size) is not int or not 0 <= size <= model.size:
            return None
        sizes[kind] = size
    return sizes


def _largest_of_each(models: Iterable[LockedModel]) -> dict[str, LockedModel]:
    found: dict[str, LockedModel] = {}
    for model in models:
        folder = modern(model.folder)
        known = found.get(folder)
        if model.path.lower().endswith(WEIGHTS) and (
            known is None or weight_bytes(model) > weight_bytes(known)
        ):
            found[folder] = model
    return found


def _largest(largest: Mapping[str, LockedModel], folders: Iterable[str]) -> list[LockedModel]:
    return sorted(
        (largest[folder] for folder in folders if folder in largest), key=weight_bytes, reverse=True
    )
