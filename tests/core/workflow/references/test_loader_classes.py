"""Loaders of packs: switches, lists of files, and classes of which nothing is known but their names."""

from collections.abc import Mapping
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import WIDGETS, FileNode
from comfyfarm.workflow.node import Link, freeze
from comfyfarm.workflow.references.find import Kind, References, find_references
from comfyfarm.workflow.references.hub_names import is_hub_repository
from comfyfarm.workflow.references.loader_names import folder_by_class
from comfyfarm.workflow.schema import NodeSchema


def look(schema: NodeSchema, class_type: str, inputs: Mapping[str, Any], **more: Any) -> References:
    made = {name: value if isinstance(value, Link) else freeze(value) for name, value in inputs.items()}
    return find_references([FileNode(NodeId("1"), class_type, made, **more)], schema)


def active(found: References) -> list[bool]:
    return [one.active for one in found.references]


@pytest.mark.parametrize(
    ("class_type", "off", "on"),
    [
        ("CR Load LoRA", {"switch": "Off"}, {"switch": "On"}),
        ("CR Random Weight LoRA", {"switch": "Off"}, {"switch": "On"}),
        ("Lora Loader Str", {"switch": "Off"}, {"switch": "On"}),
        ("AV_LoraLoader", {"enabled": False}, {"enabled": True}),
        ("LoraLoaderBlockWeight //Inspire", {"bypass": True}, {"bypass": False}),
    ],
)
def test_a_loader_that_is_switched_off_needs_nothing(
    schema: NodeSchema, class_type: str, off: dict[str, Any], on: dict[str, Any]
) -> None:
    lora = {"lora_name": "a.safetensors"}

    assert active(look(schema, class_type, {**off, **lora})) == [False]
    assert active(look(schema, class_type, {**on, **lora})) == [True]
    assert active(look(schema, class_type, lora)) == [True]


@pytest.mark.parametrize(("switch", "is_active"), [("Off", False), ("On", True)])
def test_its_switch_is_found_among_values_without_names(
    schema: NodeSchema, switch: str, is_active: bool
) -> None:
    found = look(schema, "CR Load LoRA", {WIDGETS: [switch, "a.safetensors", 1, 1]})

    assert [(r.input, r.active) for r in found.references] == [("lora_name", is_active)]


def test_a_switch_that_comes_over_a_link_may_be_on(schema: NodeSchema) -> None:
    inputs = {"switch": Link(NodeId("2"), 0), WIDGETS: ["Off", "a.safetensors", 1, 1]}

    assert active(look(schema, "CR Load LoRA", inputs)) == [True]


def test_what_is_switched_off_loads_nothing_unnamed_either(schema: NodeSchema) -> None:
    swap = {"swap_model": "inswapper_128.onnx", "face_restore_model": "none"}
    off = look(schema, "ReActorFaceSwap", {"enabled": False, **swap})
    on = look(schema, "ReActorFaceSwap", {"enabled": True, **swap})

    for found, is_active in ((off, False), (on, True)):
        assert [(r.kind, r.folder, r.active) for r in found.references] == [
            (Kind.IMPLICIT, "insightface", is_active),
            (Kind.FILE, "insightface", is_active),
        ]


def test_each_switch_of_a_stack_is_its_own(schema: NodeSchema) -> None:
    first, second = ["a.pt", "Off", 1, 1, 1], ["b.pt", "On", 1, 1, 1]
    found = look(schema, "CR Random LoRA Stack", {WIDGETS: ["Off", 1, "Off", *first, *second]})

    assert [(r.input, r.active) for r in found.references] == [("lora_name_1", False), ("lora_name_2", True)]


@pytest.mark.parametrize("inputs", [{WIDGETS: ["a.ckpt\nb/c.ckpt\n"]}, {"ckpt_names": "a.ckpt\nb/c.ckpt"}])
def test_files_that_stand_one_a_line_are_each_a_model(schema: NodeSchema, inputs: dict[str, Any]) -> None:
    found = look(schema, "CkptNames_", inputs)

    assert [(r.input, r.folder, r.path) for r in found.references] == [
        ("ckpt_names", "checkpoints", "a.ckpt"),
        ("ckpt_names", "checkpoints", "b/c.ckpt"),
    ]


@pytest.mark.parametrize(
    ("value", "folder", "path"),
    [("face.pt", "ultralytics", "face.pt"), ("bbox/face.pt", "ultralytics_bbox", "face.pt")],
)
def test_a_detector_of_the_whole_folder_finds_bare_names_there(
    schema: NodeSchema, value: str, folder: str, path: str
) -> None:
    (found,) = look(schema, "AILab_YoloV8", {"yolo_model": value}).references

    assert (found.folder, found.path) == (folder, path)


def test_another_packs_loader_is_no_file(schema: NodeSchema) -> None:
    assert look(schema, "SAMLoader", {"model_name": "ESAM"}).references == ()


@pytest.mark.parametrize(
    ("class_type", "folder"),
    [
        ("MyLoRALoader", "loras"),
        ("LoadSomeLora", "loras"),
        ("MyCheckpointLoader", "checkpoints"),
        ("Load Ckpt (mine)", "checkpoints"),
        ("SomeVAELoader", "vae"),
        ("FancyControlNetLoader", "controlnet"),
        ("load_my_lora", "loras"),
    ],
)
def test_a_loaders_name_places_the_only_file_that_has_no_name(
    schema: NodeSchema, class_type: str, folder: str
) -> None:
    found = look(schema, class_type, {WIDGETS: ["x.safetensors", 1.0, "default"]})

    assert [(r.input, r.folder) for r in found.references] == [("widgets_values.0", folder)]


@pytest.mark.parametrize(
    "class_type",
    [
        "SomeModelLoader",
        "LoraSaver",
        "ExploraLoader",
        "CheckpointLoaderWithLora",
        "MotionLoraLoader",
        "AnimateDiffLoraLoaderX",
        "SomeAudioVAELoader",
        "IPAdapterLoraLoader",
    ],
)
def test_a_name_that_leaves_a_doubt_places_nothing(schema: NodeSchema, class_type: str) -> None:
    assert folder_by_class(class_type) is None
    found = look(schema, class_type, {WIDGETS: ["x.safetensors"]})
    assert [u.name for u in found.unclassified] == ["x.safetensors"]


@pytest.mark.parametrize(
    "inputs", [{WIDGETS: ["x.safetensors", "y.safetensors"]}, {"model_name": "x.safetensors"}]
)
def test_a_loaders_name_does_not_tell_two_files_apart_nor_overrule_an_inputs(
    schema: NodeSchema, inputs: dict[str, Any]
) -> None:
    assert look(schema, "MyLoraLoader", inputs).references == ()


@pytest.mark.parametrize(
    ("class_type", "name", "text"),
    [
        ("Unknown_caption_load", "model", "unsloth/Meta-Llama-3.1-8B-bnb-4bit"),
        ("Unknown_caption_load", "widgets_values.0", "unsloth/Meta-Llama-3.1-8B-bnb-4bit"),
        ("SomeThing", "llm_model", "Qwen/Qwen2.5-7B-Instruct"),
        ("SomeThing", "captioner", "Salesforce/blip-image-captioning-base"),
        ("SomeThing", "tokenizer_path", "google/t5-v1_1-xxl"),
        ("SomeThing", "repo_id", "someone/something"),
    ],
)
def test_a_repository_is_told_by_what_its_input_is_called(
    schema: NodeSchema, class_type: str, name: str, text: str
) -> None:
    assert is_hub_repository(class_type, name, text)
    if not name.startswith(WIDGETS):
        (found,) = look(schema, class_type, {name: text}).references
        assert (found.kind, found.name, found.folder) == (Kind.HF_REPO, text, None)


@pytest.mark.parametrize(
    ("class_type", "name", "text"),
    [
        ("SomeCaption", "widgets_values.2", "Hide/Save"),
        ("SomeThing", "network_type", "LyCORIS/LoKr"),
        ("SomeThing", "format", "image/gif"),
        ("SomeThing", "model", "yolo_world/l"),
        ("FL_GeminiTextAPI", "model", "models/gemini-2.0-flash"),
        ("OpenRouterChat", "model", "openai/gpt-4o"),
        ("SomeThing", "prompt", "black-and-white/film-noir"),
        ("SomeThing", "model", "a/b/c-1"),
    ],
)
def test_other_texts_with_a_slash_are_no_repositories(
    schema: NodeSchema, class_type: str, name: str, text: str
) -> None:
    assert not is_hub_repository(class_type, name, text)
    assert look(schema, class_type, {name: text}).references == ()


def test_what_does_not_run_and_has_no_place_is_not_asked_for(schema: NodeSchema) -> None:
    inputs = {WIDGETS: ["x.safetensors"]}

    assert len(look(schema, "SomeModelThing", inputs).unclassified) == 1
    assert look(schema, "SomeModelThing", inputs, active=False).unclassified == ()
