"""The order of files is that in which ComfyUI would come to their loaders."""

import hashlib
import json
from typing import Any

import pytest

from comfyfarm.errors import InputError
from comfyfarm.lock.lockfile import LockedModel
from comfyfarm.plan.order_of_models import order_models
from comfyfarm.plan.order_of_use import execution_order, ranks_of, ranks_of_files
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.references.find import find_references
from comfyfarm.workflow.schema import NodeSchema

SCHEMA = NodeSchema.shipped()

FLUX: dict[str, Any] = {
    "1": {"class_type": "UNETLoader", "inputs": {"unet_name": "flux.safetensors", "weight_dtype": "default"}},
    "2": {
        "class_type": "DualCLIPLoader",
        "inputs": {"clip_name1": "t5.safetensors", "clip_name2": "l.safetensors", "type": "flux"},
    },
    "3": {"class_type": "VAELoader", "inputs": {"vae_name": "ae.safetensors"}},
    "4": {
        "class_type": "LoraLoaderModelOnly",
        "inputs": {"model": ["1", 0], "lora_name": "style.safetensors", "strength_model": 1.0},
    },
    "5": {"class_type": "CLIPTextEncode", "inputs": {"clip": ["2", 0], "text": "a cat"}},
    "6": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "7": {
        "class_type": "KSampler",
        "inputs": {
            "model": ["4", 0],
            "positive": ["5", 0],
            "negative": ["5", 0],
            "latent_image": ["6", 0],
            "seed": 1,
            "steps": 1,
            "cfg": 1.0,
            "sampler_name": "euler",
            "scheduler": "simple",
            "denoise": 1.0,
        },
    },
    "8": {"class_type": "VAEDecode", "inputs": {"samples": ["7", 0], "vae": ["3", 0]}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "x"}},
    "10": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "unused.pth"}},
}


def graph(nodes: dict[str, Any]) -> Workflow:
    return Workflow.from_api(nodes, name="test")


def ranks(*graphs: dict[str, Any]) -> dict[tuple[str, str], int]:
    made = [graph(nodes) for nodes in graphs]
    return dict(ranks_of([(one, find_references(one, SCHEMA).references) for one in made], is_output))


def is_output(class_type: str) -> bool:
    return SCHEMA.is_output_node(class_type)


def model(folder: str, path: str, size: int = 1) -> LockedModel:
    digest = hashlib.sha256(f"{folder}/{path}".encode()).hexdigest()
    return LockedModel(folder=folder, path=path, sha256=digest, size=size)


def names(models: tuple[LockedModel, ...]) -> list[str]:
    return [one.path for one in models]


def test_nodes_come_in_comfyuis_order() -> None:
    # By hand after ComfyUI's code: the VAE is two steps from the output, the rest as the search found it,
    # which goes depth first by the last input.
    assert execution_order(graph(FLUX), is_output) == ("3", "6", "2", "5", "1", "4", "7", "8", "9")


def test_files_come_in_the_order_of_their_loaders() -> None:
    locked = [
        model("diffusion_models", "flux.safetensors", 23),
        model("text_encoders", "l.safetensors", 2),
        model("text_encoders", "t5.safetensors", 9),
        model("loras", "style.safetensors", 1),
        model("upscale_models", "unused.pth", 99),
        model("vae", "ae.safetensors", 3),
    ]

    assert names(order_models(locked, ranks(FLUX))) == [
        "ae.safetensors",
        "t5.safetensors",  # of one node, the largest first
        "l.safetensors",
        "flux.safetensors",
        "style.safetensors",
        "unused.pth",  # no output needs it
    ]


def test_files_of_workflows_give_the_same_order() -> None:
    data = json.dumps(FLUX).encode()

    assert ranks_of_files({"flux.json": data}, SCHEMA) == ranks(FLUX)


def test_a_file_that_is_no_workflow_is_named() -> None:
    with pytest.raises(InputError, match=r"list\.json"):
        ranks_of_files({"list.json": b"[]"}, SCHEMA)


def test_what_no_output_needs_is_not_run() -> None:
    assert "10" not in execution_order(graph(FLUX), is_output)
    assert ("upscale_models", "unused.pth") not in ranks(FLUX)


def test_a_graph_without_an_output_ranks_nothing() -> None:
    nodes = {name: node for name, node in FLUX.items() if name != "9"}

    assert ranks(nodes) == {}


def test_the_first_graphs_files_come_before_those_of_the_second() -> None:
    second = {
        "1": {"class_type": "VAELoader", "inputs": {"vae_name": "second.safetensors"}},
        "2": {"class_type": "LoadImage", "inputs": {"image": "a.png"}},
        "3": {"class_type": "VAEEncode", "inputs": {"pixels": ["2", 0], "vae": ["1", 0]}},
        "4": {"class_type": "SaveLatent", "inputs": {"samples": ["3", 0], "filename_prefix": "x"}},
    }
    locked = [
        model("vae", "second.safetensors"),
        model("vae", "ae.safetensors"),
        model("loras", "style.safetensors"),
    ]

    assert names(order_models(locked, ranks(FLUX, second)))[-1] == "second.safetensors"
    assert names(order_models(locked, ranks(second, FLUX)))[0] == "second.safetensors"


def test_a_cycle_is_left_out_and_ends_nothing() -> None:
    nodes = {
        **FLUX,
        "4": {
            "class_type": "LoraLoaderModelOnly",
            "inputs": {"model": ["7", 0], "lora_name": "style.safetensors", "strength_model": 1.0},
        },
    }

    order = execution_order(graph(nodes), is_output)

    assert "3" in order
    assert not {"4", "7", "8", "9"} & set(order)


def test_a_link_to_a_node_that_is_not_there_is_passed_over() -> None:
    nodes = {"1": {"class_type": "SaveImage", "inputs": {"images": ["9", 0], "filename_prefix": "x"}}}

    assert execution_order(graph(nodes), is_output) == ("1",)


def test_old_folder_names_composed_letters_and_whole_folders_are_found() -> None:
    wanted = {
        ("text_encoders", "caf\u00e9.safetensors"): 0,
        ("diffusers", "sd"): 1,
        ("embeddings", "bad/hands"): 2,
    }
    locked = [
        model("loras", "never.safetensors", 50),
        model("embeddings", "bad/hands.pt"),
        model("diffusers", "sd/unet/weights.bin", 5),
        model("diffusers", "sd/model_index.json"),
        model("clip", "cafe\u0301.safetensors"),
    ]

    assert names(order_models(locked, wanted)) == [
        "cafe\u0301.safetensors",
        "sd/unet/weights.bin",
        "sd/model_index.json",
        "bad/hands.pt",
        "never.safetensors",
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_a_lock_alone_goes_by_folder_and_the_largest_first(turned: bool) -> None:
    locked = [
        model("vae", "v"),
        model("checkpoints", "c"),
        model("clip", "small", 1),
        model("clip", "large", 2),
        model("a_packs_own", "p"),
        model("unet", "u"),
        model("loras", "l"),
    ]

    ordered = order_models(reversed(locked) if turned else locked)

    assert names(ordered) == ["v", "c", "large", "small", "p", "u", "l"]


def test_the_folders_of_comfyuis_own_templates_go_as_the_table_says(gold: dict[str, dict[str, Any]]) -> None:
    for template, nodes in gold.items():
        by_graph = ranks(nodes)
        locked = [model(folder, path) for folder, path in by_graph]
        firsts = [one.folder for one in order_models(locked, by_graph)]
        if "vae" in firsts:
            assert firsts[0] == "vae", template
        if {"text_encoders", "diffusion_models"} <= set(firsts):
            assert firsts.index("text_encoders") < firsts.index("diffusion_models"), template
