"""The command, called in this process, with a state directory of its own."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from comfyfarm.cli import main
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

Command = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Call `comfyfarm` with these words; no exception but an exit may come out of it."""
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMFYFARM_CACHE_DIR", str(tmp_path / "cache"))
    logger = logging.getLogger("comfyfarm")
    before = (logger.handlers, logger.level)

    def call(*words: object) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)

    yield call
    # The handler of a `render` writes to this call's stderr, which is closed by now.
    logger.handlers, logger.level = before


@pytest.fixture
def serving() -> Iterator[Callable[..., tuple[FakeComfy, str]]]:
    """Start fake ComfyUI servers: the fake, and its address."""
    with ExitStack() as stack:

        def start(**options: Any) -> tuple[FakeComfy, str]:
            fake = FakeComfy(**options)
            stack.callback(fake.clean_up)
            return fake, stack.enter_context(serve(fake.app))

        yield start


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A workflow without models."""
    size = {"width": 16, "height": 16, "batch_size": 1, "color": 0}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": size},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "p"}},
    }
    file = tmp_path / "picture.json"
    file.write_text(json.dumps(graph))
    return file


@pytest.fixture
def upscale(tmp_path: Path) -> Path:
    """A workflow with two models."""
    graph = {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "sub/a.pth"}},
        "2": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]},
        },
        "4": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "b.safetensors"}},
        "5": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["4", 0], "image": ["3", 0]},
        },
        "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "up"}},
    }
    file = tmp_path / "upscale.json"
    file.write_text(json.dumps(graph))
    return file
