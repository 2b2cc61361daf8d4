"""Recorded traffic of ComfyUI 0.27, sent to the fake: the same answers and the same messages."""

from collections.abc import Callable
from typing import Any

import pytest

import gzip, json, pathlib
SCENARIOS = {p.name.split('.')[0]: [e['scenario'] for e in json.loads(gzip.decompress(p.read_bytes()))] for p in pathlib.Path('tests/data/recordings').glob('*.gz')}

@pytest.mark.parametrize(("topic", "name"), [(topic, name) for topic, names in SCENARIOS.items() for name in names])
async def test_the_fake_answers_as_recorded(
    topic: str, name: str, replay: Callable[..., Any], scenarios: Callable[[str], Any]
) -> None:
    await replay(scenarios(topic)[name])
