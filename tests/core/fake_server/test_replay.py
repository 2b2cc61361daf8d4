"""Recorded traffic of ComfyUI 0.27, sent to the fake: the same answers and the same messages."""

from collections.abc import Callable
from typing import Any

import pytest

SCENARIOS = {
    "run": ["success_basic", "same_workflow_twice"],
}


@pytest.mark.parametrize(("topic", "name"), [(topic, name) for topic, names in SCENARIOS.items() for name in names])
async def test_the_fake_answers_as_recorded(
    topic: str, name: str, replay: Callable[..., Any], scenarios: Callable[[str], Any]
) -> None:
    await replay(scenarios(topic)[name])
