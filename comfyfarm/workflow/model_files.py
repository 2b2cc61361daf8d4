"""What files of models are called, by their suffix."""

import re
from typing import Final

WEIGHTS: Final = (".safetensors", ".sft", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".pkl", ".gguf")
"""Suffixes of files that hold weights."""
_PICKLED: Final = (".ckpt", ".pt", ".pth", ".bin", ".pkl")
_MODEL_FILE: Final = re.compile(
    r"\.(?:safetensors|sft|ckpt|pt|pt2|pth|bin|pkl|gguf|onnx|engine|trt|task|npz|patch|torchscript)\s*$",
    re.IGNORECASE,
)


def is_model_file(text: str) -> bool:
    """Whether the text ends as names of model files do, blanks behind it included: browsers add them."""
    return _MODEL_FILE.search(text) is not None


def is_pickled(name: str) -> bool:
    """Whether the file is a pickle by its name, which runs code when it is loaded."""
    return name.strip().lower().endswith(_PICKLED)
