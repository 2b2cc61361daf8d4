"""The graphs that the samples carry, and the samples."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Sample = Callable[[str], bytes]
DATA = Path(__file__).parents[3] / "data" / "carriers"


@pytest.fixture(scope="session")
def graph() -> dict[str, Any]:
    """The API graph in every sample."""
    image = {"width": 64, "height": 64, "batch_size": 1, "color": 0}
    return {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "café"}},
    }


@pytest.fixture(scope="session")
def prompt(graph: dict[str, Any]) -> str:
    """The same as ComfyUI writes it."""
    return json.dumps(graph)


@pytest.fixture(scope="session")
def sample() -> Sample:
    def read(name: str) -> bytes:
        data = (DATA / name).read_bytes()
        return gzip.decompress(data) if name.endswith(".gz") else data

    return read
