"""Legacy group nodes."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.ui.convert import Converted

Run = Callable[..., Converted]
Make = Callable[..., Any]


def inputs(made: Converted, node: str) -> dict[str, Any]:
    found: dict[str, Any] = made.graph[node]["inputs"]
    return found


@pytest.fixture
def sampling(node: Make) -> dict[str, Any]:
    """A template: two loaders, a prompt, a sampler; the latent comes from outside, the image goes out."""
    return {
        "nodes": [
            node(-1, "CheckpointLoaderSimple", "stale.safetensors", outputs=["MODEL", "CLIP", "VAE"]),
            node(-1, "CLIPTextEncode", "stale", inputs={"clip": ("CLIP", None)}, outputs=["CONDITIONING"]),
            node(
                -1,
                "KSampler",
                *[0, "fixed", 1, 1, "euler", "normal", 1],
                inputs={
                    "model": ("MODEL", None),
                    "positive": ("CONDITIONING", None),
                    "negative": ("CONDITIONING", None),
                    "latent_image": ("LATENT", None),
                },
                outputs=["LATENT"],
            ),
            node(
                -1,
                "VAEDecode",
                inputs={"samples": ("LATENT", None), "vae": ("VAE", None)},
                outputs=["IMAGE"],
            ),
        ],
        "links": [
            [0, 1, 1, 0, 4, "CLIP"],
            [0, 0, 2, 0, 4, "MODEL"],
            [1, 0, 2, 1, 6, "CONDITIONING"],
            [1, 0, 2, 2, 6, "CONDITIONING"],
            [None, 0, 2, 3, 5, "LATENT"],
            [2, 0, 3, 0, 3, "LATENT"],
            [0, 2, 3, 1, 4, "VAE"],
        ],
        "external": [[3, 0, "IMAGE"]],
    }


VALUES = ["own.safetensors", "a fox", 42, "randomize", 17, 6.5, "dpmpp_2m", "karras", 0.87]


def file(node: Make, template: dict[str, Any], *, kind: str = "workflow>Sampling", **more: Any) -> Any:
    instance = node(10, kind, *VALUES, inputs={"latent_image": ("LATENT", 100)}, outputs=["IMAGE"], **more)
    return {
        "nodes": [
            node(20, "EmptyLatentImage", 768, 512, 3, outputs=["LATENT"]),
            instance,
            node(30, "SaveImage", "out", inputs={"images": ("IMAGE", 101)}),
        ],
        "links": [[100, 20, 0, 10, 0, "LATENT"], [101, 10, 0, 30, 0, "IMAGE"]],
        "extra": {"groupNodes": {"Sampling": template}},
    }


@pytest.mark.parametrize("kind", ["workflow>Sampling", "workflow/Sampling"])
def test_f11_a_group_node_is_unfolded_with_the_values_of_its_instance(
    run: Run, node: Make, sampling: dict[str, Any], kind: str
) -> None:
    made = run(file(node, sampling, kind=kind))

    assert list(made.graph) == ["20", "10:0", "10:1", "10:2", "10:3", "30"]
    assert inputs(made, "10:0") == {"ckpt_name": "own.safetensors"}
    assert inputs(made, "10:1") == {"text": "a fox", "clip": ["10:0", 1]}
    assert inputs(made, "10:2") == {
        "seed": 42,
        "steps": 17,
        "cfg": 6.5,
        "sampler_name": "dpmpp_2m",
        "scheduler": "karras",
        "denoise": 0.87,
        "model": ["10:0", 0],
        "positive": ["10:1", 0],
        "negative": ["10:1", 0],
        "latent_image": ["20", 0],
    }
    assert inputs(made, "10:3") == {"samples": ["10:2", 0], "vae": ["10:0", 2]}
    assert inputs(made, "30") == {"filename_prefix": "out", "images": ["10:3", 0]}
    assert made.findings == ()
    assert run(file(node, sampling, kind=kind), editor="1.45").graph == made.graph


def test_f11_what_the_template_holds_is_no_value_of_anything(
    run: Run, node: Make, sampling: dict[str, Any]
) -> None:
    made = run(file(node, sampling))
    unused = run({"nodes": [], "links": [], "extra": {"groupNodes": {"Sampling": sampling}}})

    assert not any("stale" in str(dict(item.inputs)) for item in made.nodes)
    assert unused.nodes == ()


def test_a_muted_group_node_is_inactive(run: Run, node: Make, sampling: dict[str, Any]) -> None:
    made = run(file(node, sampling, mode=2))

    assert list(made.graph) == ["20", "30"]
    assert "images" not in inputs(made, "30")
    assert {item.id for item in made.nodes if not item.active} == {"10:0", "10:1", "10:2", "10:3"}


def test_equal_inputs_get_the_title_of_their_node_in_front(run: Run, node: Make) -> None:
    template = {
        "nodes": [
            node(
                -1, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", None)}, outputs=["IMAGE"]
            ),
            node(
                -1, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", None)}, outputs=["IMAGE"]
            ),
        ],
        "links": [],
        "external": [],
        "config": {"1": {"input": {"vae": {"visible": False}}}},
    }
    instance = node(
        10,
        "workflow>Two",
        inputs={"samples": ("LATENT", 1), "vae": ("VAE", 2), "VAEDecode samples": ("LATENT", 3)},
        outputs=["IMAGE", "IMAGE"],
    )
    tree = {
        "nodes": [
            node(1, "EmptyLatentImage", 1, 1, 1, outputs=["LATENT"]),
            node(2, "VAELoader", "ae.safetensors", outputs=["VAE"]),
            instance,
            node(4, "PreviewImage", inputs={"images": ("IMAGE", 4)}),
        ],
        "links": [
            [1, 1, 0, 10, 0, "LATENT"],
            [2, 2, 0, 10, 1, "VAE"],
            [3, 1, 0, 10, 2, "LATENT"],
            [4, 10, 1, 4, 0, "IMAGE"],
        ],
        "extra": {"groupNodes": {"Two": template}},
    }
    made = run(tree)

    assert inputs(made, "10:0") == {"samples": ["1", 0], "vae": ["2", 0]}
    assert inputs(made, "10:1") == {"samples": ["1", 0]}
    assert inputs(made, "4") == {"images": ["10:1", 0]}


def test_a_primitive_in_a_group_node_types_the_value_of_the_instance(run: Run, node: Make) -> None:
    template = {
        "nodes": [
            node(-1, "PrimitiveNode", 1, "fixed", outputs=["INT"]),
            node(-1, "EmptyLatentImage", 5, 6, 7, inputs={"width": ("INT", None, "w")}, outputs=["LATENT"]),
        ],
        "links": [[0, 0, 1, 0, 1, "INT"]],
    }
    instance = node(10, "workflow>Size", 640, "fixed", 480, 2)
    made = run({"nodes": [instance], "links": [], "extra": {"groupNodes": {"Size": template}}})

    assert inputs(made, "10:1") == {"width": 640, "height": 480, "batch_size": 2}


def test_a_class_that_is_not_known_takes_as_many_values_as_its_template_has(run: Run, node: Make) -> None:
    template = {
        "nodes": [node(-1, "Odd", "stale.gguf", 1, 2), node(-1, "VAELoader", "stale.safetensors")],
        "links": [],
    }
    instance = node(10, "workflow>Mixed", "own.gguf", 3, 4, "own.safetensors")
    made = run({"nodes": [instance], "links": [], "extra": {"groupNodes": {"Mixed": template}}})

    assert inputs(made, "10:0") == {"widgets_values": {"__value__": ["own.gguf", 3, 4]}}
    assert inputs(made, "10:1") == {"vae_name": "own.safetensors"}
    assert [(f.code, f.node) for f in made.findings] == [("unknown_class_kept", "10:0")]


def test_a_group_node_without_its_template_is_an_error(run: Run, node: Make) -> None:
    made = run({"nodes": [node(10, "workflow>Gone", "a.safetensors")], "links": []})

    assert [(f.code, str(f.severity), f.node) for f in made.findings] == [
        ("missing_group_node", "error", "10")
    ]


def test_a_group_node_inside_another_takes_its_share_of_the_values(run: Run, node: Make) -> None:
    inner = {"nodes": [node(-1, "VAELoader", "stale"), node(-1, "VAELoader", "stale")], "links": []}
    outer = {
        "nodes": [node(-1, "workflow>Inner", "stale", "stale"), node(-1, "VAELoader", "stale")],
        "links": [],
    }
    tree = {
        "nodes": [node(10, "workflow>Outer", "a", "b", "c")],
        "links": [],
        "extra": {"groupNodes": {"Inner": inner, "Outer": outer}},
    }
    made = run(tree)

    assert {key: inputs(made, key)["vae_name"] for key in made.graph} == {
        "10:0:0": "a",
        "10:0:1": "b",
        "10:1": "c",
    }


def test_a_group_node_inside_itself_is_a_cycle(run: Run, node: Make) -> None:
    template = {"nodes": [node(-1, "workflow>Loop"), node(-1, "VAELoader", "a")], "links": []}
    made = run(
        {"nodes": [node(1, "workflow>Loop")], "links": [], "extra": {"groupNodes": {"Loop": template}}}
    )

    assert [f.code for f in made.findings] == ["subgraph_cycle"]
    assert list(made.graph) == ["1:1"]
