"""Bypassing by type."""

from typing import Any

import pytest

from comfyfarm.workflow.ui.tree import UiNode, read_node
from comfyfarm.workflow.ui.wires import fits, passed_through


def bypassed(inputs: list[str], outputs: list[str]) -> UiNode:
    def slots(kinds: list[str]) -> list[dict[str, Any]]:
        return [{"name": f"s{at}", "type": kind} for at, kind in enumerate(kinds)]

    return read_node({"type": "X", "mode": 4, "inputs": slots(inputs), "outputs": slots(outputs)}, "1")


@pytest.mark.parametrize(
    ("inputs", "outputs", "slot", "kind", "expected"),
    [
        (["MODEL", "CLIP"], ["MODEL", "CLIP"], 1, "CLIP", 1),
        (["CLIP", "MODEL"], ["MODEL", "CLIP"], 0, "MODEL", 1),  # not its own place
        (["IMAGE", "IMAGE"], ["MASK", "IMAGE"], 1, "IMAGE", 1),  # its own place first
        (["MASK", "IMAGE", "IMAGE"], ["IMAGE"], 0, "IMAGE", 1),  # then the first of that type
        (["MASK", "*"], ["IMAGE"], 0, "IMAGE", 1),  # then any that fits
        (["MASK"], ["IMAGE"], 0, "IMAGE", None),
        ([], ["IMAGE"], 0, "IMAGE", None),
        (["MASK", "LATENT"], ["IMAGE", "IMAGE"], 1, "*", 1),
        (["MASK"], ["IMAGE", "IMAGE"], 1, "*", 0),
        ([], ["IMAGE"], 0, "*", None),
        (["IMAGE"], [], -1, "IMAGE", 0),
        (["IMAGE"], [], 9, "*", 0),
    ],
)
def test_f2_the_input_that_a_bypassed_node_gives_on(
    inputs: list[str], outputs: list[str], slot: int, kind: str, expected: int | None
) -> None:
    assert passed_through(bypassed(inputs, outputs), slot, kind) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("IMAGE", "IMAGE", True),
        ("image", "IMAGE", True),
        ("IMAGE", "MASK", False),
        ("IMAGE,MASK", "MASK", True),
        ("IMAGE,MASK", "LATENT,MASK", True),
        ("*", "MASK", True),
        ("", "MASK", True),
    ],
)
def test_types_fit_as_in_the_editor(one: str, other: str, expected: bool) -> None:
    assert fits(one, other) is expected
    assert fits(other, one) is expected
