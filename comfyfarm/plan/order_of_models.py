"""Model files in the order in which they are needed, so that they may come in that order.

By ranks, where graphs gave them (`order_of_use`); else by folder, as most graphs go. Largest first among
equals, since the largest takes longest.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from comfyfarm.workflow.folders import modern

Place = tuple[str, str]
"""Folder by its name of today, and path in Unicode's NFC."""
Ranks = Mapping[Place, int]
"""When a file is needed: the lower, the sooner."""

NEVER = 1 << 62
_FOLDERS: Mapping[str, int] = {
    "vae": 0,
    "checkpoints": 1,
    "clip_vision": 2,
    "text_encoders": 3,
    "clip_gguf": 3,
    "diffusion_models": 5,
    "unet_gguf": 5,
    "loras": 6,
    "latent_upscale_models": 7,
}
"""Mean turns in ComfyUI's own 0.1.123 templates: a VAE comes first there, being two steps from an output."""
_ELSEWHERE = 4


class _Ordered(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def path(self) -> str: ...


Model = TypeVar("Model", bound=_Ordered)


def order_models(models: Iterable[Model], ranks: Ranks | None = None) -> tuple[Model, ...]:
    """The files in the order in which they are needed: those with a rank first, the others by folder.

    A rank of a folder counts for every file in it, and one of a name without extension for the file.
    """
    known = ranks or {}
    return tuple(
        sorted(
            models,
            key=lambda model: (
                _rank(model, known),
                _FOLDERS.get(modern(model.folder), _ELSEWHERE),
                -model.size,
                model.sha256,
            ),
        )
    )


def _rank(model: _Ordered, ranks: Ranks) -> int:
    folder, path = place_of(model.folder, model.path)
    if not ranks:
        return NEVER
    parents = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 1)]
    names = (path, path.rpartition(".")[0], *parents)
    return min(ranks.get((folder, name), NEVER) for name in names)


def place_of(folder: str, path: str) -> Place:
    """Where a file of this folder and path is looked up in the ranks."""
    return modern(folder), unicodedata.normalize("NFC", path)
