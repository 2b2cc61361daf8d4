"""Model references, against what people found in real files."""

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest

from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.references.find import Kind, Reference, find_references
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


def one(make: Make, schema: NodeSchema, class_type: str, **inputs: Any) -> tuple[Reference, ...]:
    return find_references(make({"1": {"class_type": class_type, "inputs": inputs}}), schema).references


def test_every_loader_of_the_schema_has_a_folder(schema: NodeSchema) -> None:
    """An empty list in the shipped schema lists files: each is a model, an upload or free text."""
    free = {("CustomCombo", "choice")}
    shipped = resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes()
    for class_type in json.loads(shipped):
        for spec in schema.inputs(class_type).values():
            if spec.options == () and spec.upload is None and (class_type, spec.name) not in free:
                is_file = class_type in {"LoadLatent", "GeminiInputFiles", "OpenAIInputFiles"}
                assert is_file or FolderMap.shipped().folders(class_type, spec.name), (
                    f"{class_type}.{spec.name}"
                )


@pytest.mark.parametrize(
    ("class_type", "name", "folders"),
    [
        ("CLIPLoader", "clip_name", ("text_encoders", "clip")),
        ("UNETLoader", "unet_name", ("diffusion_models", "unet")),
        ("ControlNetLoader", "control_net_name", ("controlnet", "t2i_adapter")),
        ("LTXAVTextEncoderLoader", "ckpt_name", ("checkpoints",)),
        ("KSampler", "seed", ()),
    ],
)
def test_the_folder_of_today_comes_first(class_type: str, name: str, folders: tuple[str, ...]) -> None:
    assert FolderMap.shipped().folders(class_type, name) == folders


def test_backslashes_become_slashes_and_the_name_stays(make: Make, schema: NodeSchema) -> None:
    (found,) = one(make, schema, "UNETLoader", unet_name="Wan\\2.1\\x.safetensors", weight_dtype="default")

    assert (found.name, found.path) == ("Wan\\2.1\\x.safetensors", "Wan/2.1/x.safetensors")


@pytest.mark.parametrize("value", ["pixel_space", "", "None", "[None]"])
def test_sentinels_name_no_file(make: Make, schema: NodeSchema, value: str) -> None:
    assert one(make, schema, "VAELoader", vae_name=value) == ()


@pytest.mark.parametrize("value", ["taesd", "taef1", "taehv.safetensors"])
def test_approximate_decoders_lie_in_a_folder_of_their_own(
    make: Make, schema: NodeSchema, value: str
) -> None:
    (found,) = one(make, schema, "VAELoader", vae_name=value)

    assert (found.folder, found.path) == ("vae_approx", value)


def test_a_diffusers_model_is_a_directory(make: Make, schema: NodeSchema) -> None:
    (found,) = one(make, schema, "DiffusersLoader", model_path="sd15")

    assert (found.folder, found.kind) == ("diffusers", Kind.DIRECTORY)


def test_an_address_is_no_file_of_a_folder(make: Make, schema: NodeSchema) -> None:
    url = "https://civitai.com/api/download/models/142421"
    (found,) = one(make, schema, "CheckpointLoaderSimple", ckpt_name=url)

    assert (found.kind, found.folder, found.path) == (Kind.URL, None, url)


def test_embeddings_are_found_in_any_text(make: Make, schema: NodeSchema) -> None:
    (found,) = one(make, schema, "CLIPTextEncode", text="(embedding:EasyNegative:1.2), cat")

    assert (found.kind, found.folder, found.name) == (Kind.EMBEDDING, "embeddings", "EasyNegative")


def test_wrapped_and_nested_values_are_looked_into(make: Make, schema: NodeSchema) -> None:
    graph = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": {"__value__": "a.ckpt"}}},
        "2": {
            "class_type": "Power",
            "inputs": {"row": {"on": True, "lora": "b.safetensors"}, "l": ["x", ["c.pt"]]},
        },
    }
    found = find_references(make(graph), schema)

    assert [(r.input, r.name) for r in found.references] == [
        ("ckpt_name", "a.ckpt"),
        ("row", "b.safetensors"),
    ]
    assert [(u.input, u.name) for u in found.unclassified] == [("l.1.0", "c.pt")]


def test_prose_that_ends_like_a_file_is_no_model(make: Make, schema: NodeSchema) -> None:
    graph = {
        "1": {"class_type": "CLIPTextEncode", "inputs": {"text": "a robot called x.bin"}},
        "2": {"class_type": "SaveImage", "inputs": {"filename_prefix": "model.ckpt"}},
        "3": {"class_type": "Note", "inputs": {"text": "one\ntwo.safetensors"}},
        "4": {"class_type": "LoadImage", "inputs": {"image": "odd.bin"}},
    }
    found = find_references(make(graph), schema)

    assert (found.references, found.unclassified) == ((), ())
