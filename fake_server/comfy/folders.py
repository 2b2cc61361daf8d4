"""The models folders: which directories a key stands for, and the names they hold.

Source: folder_paths.py of ComfyUI 0.27, as observed through /models and /internal/folder_paths.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

WEIGHTS = frozenset({".bin", ".ckpt", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".sft"})
_DETECTORS = WEIGHTS | {".onnx", ".task", ".tflite"}

# In the order in which GET /models lists them.
KEYS = (
    "checkpoints", "configs", "loras", "vae", "text_encoders", "diffusion_models", "clip_vision",
    "style_models", "embeddings", "diffusers", "vae_approx", "controlnet", "gligen", "upscale_models",
    "latent_upscale_models", "custom_nodes", "hypernetworks", "photomaker", "classifiers", "model_patches",
    "audio_encoders", "background_removal", "frame_interpolation", "geometry_estimation", "optical_flow",
    "detection",
)  # fmt: skip

_SUBDIRECTORIES: Mapping[str, tuple[str, ...]] = {
    "text_encoders": ("text_encoders", "clip"),
    "diffusion_models": ("unet", "diffusion_models"),
    "controlnet": ("controlnet", "t2i_adapter"),
}
_EXTENSIONS: Mapping[str, frozenset[str] | None] = {
    "configs": frozenset({".yaml"}),
    "diffusers": None,
    "custom_nodes": None,
    "detection": _DETECTORS,
}
ALIASES: Mapping[str, str] = {
    "unet": "diffusion_models",
    "clip": "text_encoders",
    "t2i_adapter": "controlnet",
}


class ModelFolders:
    """What lies in the models folders now: every call looks again, as the real server does."""

    def __init__(self, models_dir: Path, extra_model_paths: Path | None = None) -> None:
        self.paths: dict[str, list[Path]] = {
            key: [models_dir / sub for sub in _SUBDIRECTORIES.get(key, (key,))] for key in KEYS
        }
        if extra_model_paths is not None:
            self._add_extra(extra_model_paths)

    def names(self, key: str) -> list[str] | None:
        """The file names under a key, relative to its folder, sorted; None for an unknown key."""
        key = ALIASES.get(key, key)
        if key not in self.paths:
            return None
        if key == "diffusers":
            return sorted({name for path in self.paths[key] for name in _pipelines(path)})
        extensions = _EXTENSIONS.get(key, WEIGHTS)
        return sorted({name for path in self.paths[key] for name in _files(path, extensions)})

    def combo(self, keys: Iterable[str]) -> list[str]:
        """The names that a loader with these folder keys offers."""
        return sorted({name for key in keys for name in self.names(key) or ()})

    def embeddings(self) -> list[str]:
        """Embedding names without their extension, as GET /embeddings gives them."""
        return [str(Path(name).with_suffix("")) for name in self.names("embeddings") or ()]

    def _add_extra(self, file: Path) -> None:
        config = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        for section in config.values():
            if isinstance(section, dict):
                self._add_section(section, file.parent)

    def _add_section(self, section: dict[str, object], beside: Path) -> None:
        base = beside / Path(str(section.get("base_path") or "")).expanduser()
        first = bool(section.get("is_default"))
        for key, value in section.items():
            if key in {"base_path", "is_default"} or not value:
                continue
            places = self.paths.setdefault(ALIASES.get(key, key), [])
            for line in str(value).split("\n"):
                path = base / line.strip()
                if line.strip() and path not in places:
                    places.insert(0, path) if first else places.append(path)


def _files(folder: Path, extensions: frozenset[str] | None) -> list[str]:
    return [
        path.relative_to(folder).as_posix()
        for path in _walk(folder)
        if extensions is None or path.suffix.lower() in extensions
    ]


def _pipelines(folder: Path) -> list[str]:
    found = (path for path in _walk(folder) if path.name == "model_index.json")
    return [path.parent.relative_to(folder).as_posix() for path in found]


def _walk(folder: Path) -> Iterator[Path]:
    # os.walk, since a linked folder inside the models folder counts, and rglob would pass it by.
    for at, _, names in os.walk(folder, followlinks=True):
        yield from (path for name in names if (path := Path(at, name)).is_file())
