"""What every test starts from: no setting of the user's own reaches it."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_GOLD = Path(__file__).parent / "data" / "templates" / "gold.jsonl.gz"
_SIX_TEMPLATES = (
    "image_sdxl_simple.json",
    "audio_ace_step_1_m2m_editing.json",
    "3d_hunyuan3d-v2.1.json",
    "utility-gan_upscaler.json",
    "flux_fill_inpaint_example.json",
    "image_qwen_image_controlnet_patch.json",
)
"""Of the rows of `gold.jsonl.gz` those with each kind of input and output: see the README beside it."""

# A busy machine is no fault of a property.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers, one runs all that needs a Prefect server: two are too much for two cores."""
    for item in items:
        if item.get_closest_marker("prefect") is not None:
            item.add_marker(pytest.mark.xdist_group("prefect"))


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("COMFYFARM_", "AWS_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def gold() -> dict[str, dict[str, Any]]:
    """What the editor made of six templates."""
    lines = gzip.decompress(_GOLD.read_bytes()).splitlines()
    graphs = {row["template"]: row["output"] for row in map(json.loads, lines)}
    return {name: graphs[name] for name in _SIX_TEMPLATES}
