"""Where a file says that models and nodes come from."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.file_node import ModelHint, PackHint
from comfyfarm.workflow.ui.convert import Converted
from comfyfarm.workflow.ui.hints import model_hints, pack_hint

DIGEST = "AB" * 32


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"cnr_id": "comfy-core", "ver": "0.3.27"}, PackHint(cnr_id="comfy-core", ver="0.3.27")),
        ({"cnr_id": "ComfyUI-GGUF", "ver": "v1.1.0"}, PackHint(cnr_id="ComfyUI-GGUF", ver="1.1.0")),
        ({"aux_id": "user/repo", "ver": "a" * 40}, PackHint(aux_id="user/repo", ver="a" * 40)),
        ({"ver": "nightly"}, PackHint(ver="nightly")),
        ({"ver": "vega"}, PackHint(ver="vega")),
        ({"cnr_id": 5, "ver": None}, None),
        ({}, None),
    ],
)
def test_f20_f21_the_pack_is_as_the_file_has_it(
    properties: dict[str, Any], expected: PackHint | None
) -> None:
    assert pack_hint(properties) == expected


def test_models_are_read_with_their_digest() -> None:
    raw = [
        {"name": "a", "url": "https://x/a", "directory": "vae", "hash": DIGEST, "hash_type": "SHA256"},
        {"name": "b", "hash": DIGEST, "hash_type": "MD5"},
        {"name": "c", "hash": "12", "hash_type": "SHA256"},
        {"url": "https://x/nameless"},
        "odd",
    ]

    assert model_hints(raw) == (
        ModelHint("a", "https://x/a", "vae", DIGEST.lower()),
        ModelHint("b"),
        ModelHint("c"),
    )
    assert model_hints({"name": "a"}) == ()


def test_models_of_a_node_and_of_the_whole_file(
    run: Callable[..., Converted], node: Callable[..., Any]
) -> None:
    tree = {
        "nodes": [
            node(1, "VAELoader", "ae.safetensors", properties={"models": [{"name": "stale.safetensors"}]}),
            node(2, "VAELoader", "other.safetensors", mode=2),
        ],
        "links": [],
        "models": [{"name": "ae.safetensors", "directory": "vae"}, {"name": "nobody.safetensors"}],
    }
    first, second = run(tree).nodes

    assert first.models == (ModelHint("stale.safetensors"), ModelHint("ae.safetensors", None, "vae"))
    assert (second.models, second.active) == ((), False)
