"""Which input of which class names a file of which models folder.

`folders.json` was found by asking a server, not by reading code: every models folder held one
uniquely named empty file, and each combo told which of them it offers.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

NO_FILE = frozenset({"", "None", "none", "[None]"})
"""Values that stand for no file at all, whatever the loader."""


def folder_of(class_type: str, name: str) -> tuple[str, ...]:
    """The models-folder keys whose files the input offers, the modern key first; () if unknown."""
    return tuple(_map()["models"].get(class_type, {}).get(name, ()))


def sentinels_of(class_type: str, name: str) -> tuple[str, ...]:
    """Values of the input that name no file, such as VAELoader's `pixel_space`."""
    return tuple(_map()["sentinels"].get(class_type, {}).get(name, ()))


def is_input_file(class_type: str, name: str) -> bool:
    """Whether the input names a file of the server's input folder, without an upload flag."""
    return name in _map()["input_files"].get(class_type, ())


def is_directory(folder: str) -> bool:
    """Whether entries of this folder are directories (`model_index.json` and what it names)."""
    return folder in _map()["directories"]


def modern(folder: str) -> str:
    """The folder key of today: `clip` is `text_encoders`, `unet` is `diffusion_models`."""
    found: str = _map()["legacy"].get(folder, folder)
    return found


def approx_vae(name: str) -> tuple[str, ...]:
    """The files in `vae_approx` that a VAELoader's value stands for, without extension; () if none."""
    found = _map()["vae_approx"]
    if name in found["pairs"]:
        return (f"{name}_encoder", f"{name}_decoder")
    stem = name.rpartition(".")[0]
    return (stem,) if stem in found["single"] else ()


@cache
def _map() -> Mapping[str, Any]:
    data = resources.files("comfyfarm.workflow").joinpath("folders.json").read_bytes()
    found: dict[str, Any] = json.loads(data)
    return found
