"""The rows E of the list of tricky cases, and those of F that touch on references; ids as in the list."""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import WIDGETS, FileNode, ModelHint
from comfyfarm.workflow.findings import Finding, Severity
from comfyfarm.workflow.node import Link, freeze
from comfyfarm.workflow.references.find import (
    Kind,
    Reference,
    References,
    find_references,
    reference_findings,
)
from comfyfarm.workflow.schema import NodeSchema

Look = Callable[..., References]


def node(class_type: str, inputs: Mapping[str, Any], *, at: str = "1", **more: Any) -> FileNode:
    made = {name: value if isinstance(value, Link) else freeze(value) for name, value in inputs.items()}
    return FileNode(NodeId(at), class_type, made, **more)


def refs(schema: NodeSchema, *nodes: FileNode) -> tuple[Reference, ...]:
    found = find_references(nodes, schema)
    assert found.unclassified == ()
    return found.references


def brief(found: tuple[Reference, ...]) -> list[tuple[str | None, str | None, str | None]]:
    return [(r.input, r.folder, r.path) for r in found if r.active]


def told(schema: NodeSchema, *nodes: FileNode) -> list[Finding]:
    return [*reference_findings(nodes, find_references(nodes, schema), schema)]


def codes(found: list[Finding]) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in found if finding.code != "unseen_models"}


@pytest.mark.parametrize(
    ("class_type", "name", "value", "folder"),
    [
        ("VAELoader", "vae_name", "ae.safetensors", "vae"),
        ("UpscaleModelLoader", "model_name", "4x.pth", "upscale_models"),
        ("CLIPVisionLoader", "clip_name", "v.safetensors", "clip_vision"),
        ("IPAdapterModelLoader", "ipadapter_file", "i.bin", "ipadapter"),
        ("SomeUnknownLoader", "ckpt_name", "a.ckpt", "checkpoints"),
        ("SomeUnknownLoader", "lora_name_2", "a.safetensors", "loras"),
        ("SomeUnknownLoader", "control_net_name", "a.pth", "controlnet"),
        ("SomeUnknownLoader", "clip_name1", "a.safetensors", "text_encoders"),
        ("SomeUnknownLoader", "upscale_model", "a.pth", "upscale_models"),
    ],
)
def test_e1_every_key_that_names_a_model_is_seen(
    schema: NodeSchema, class_type: str, name: str, value: str, folder: str
) -> None:
    assert brief(refs(schema, node(class_type, {name: value}))) == [(name, folder, value)]


def test_e1_a_key_that_says_no_folder_is_unclassified(schema: NodeSchema) -> None:
    found = find_references([node("SomeUnknownLoader", {"model_name": "a.safetensors"})], schema)

    assert found.references == ()
    assert [(u.input, u.name) for u in found.unclassified] == [("model_name", "a.safetensors")]
    assert codes(told(schema, node("X", {"model_name": "a.safetensors"}))) == {
        "unclassified_model": Severity.WARNING
    }


def test_e2_the_raw_name_is_kept_and_the_path_has_slashes(schema: NodeSchema) -> None:
    (found,) = refs(schema, node("UNETLoader", {"unet_name": "Wan\\x.safetensors"}))

    assert (found.name, found.path) == ("Wan\\x.safetensors", "Wan/x.safetensors")


@pytest.mark.parametrize("name", ["📷-v1.x\\m.safetensors", "新世界 _v6.0.safetensors", "café.safetensors"])
def test_e3_names_keep_their_characters_and_compare_composed(schema: NodeSchema, name: str) -> None:
    split = unicodedata.normalize("NFD", name)
    (whole,) = refs(schema, node("LoraLoader", {"lora_name": name}))
    (apart,) = refs(schema, node("LoraLoader", {"lora_name": split}))

    assert (whole.name, apart.name) == (name, split)
    assert whole.key == apart.key


def test_e4_case_makes_another_file(schema: NodeSchema) -> None:
    (upper,) = refs(schema, node("LoraLoader", {"lora_name": "Lora/X.safetensors"}))
    (lower,) = refs(schema, node("LoraLoader", {"lora_name": "lora/x.safetensors"}))

    assert upper.key != lower.key


def test_e5_one_file_name_in_two_folders_is_two_models(schema: NodeSchema) -> None:
    names = [f"{folder}/diffusion_pytorch_model.safetensors" for folder in ("instantid", "canny")]
    found = refs(
        schema,
        *(node("ControlNetLoader", {"control_net_name": name}, at=str(at)) for at, name in enumerate(names)),
    )

    assert [r.path for r in found] == names
    assert len({r.key for r in found}) == 2


def test_e6_one_name_as_checkpoint_and_as_diffusion_model_is_two_entries(schema: NodeSchema) -> None:
    name = "flux1-dev-fp8.safetensors"
    found = refs(
        schema,
        node("CheckpointLoaderSimple", {"ckpt_name": name}),
        node("UNETLoader", {"unet_name": name}, at="2"),
    )

    assert [r.key for r in found] == [("checkpoints", name), ("diffusion_models", name)]


def test_e8_taesd_stands_for_files_of_vae_approx_and_pixel_space_for_none(schema: NodeSchema) -> None:
    assert brief(refs(schema, node("VAELoader", {"vae_name": "taesd"}))) == [
        ("vae_name", "vae_approx", "taesd")
    ]
    assert refs(schema, node("VAELoader", {"vae_name": "pixel_space"})) == ()


@pytest.mark.parametrize(
    ("class_type", "name", "value"),
    [
        ("LoraLoader", "lora_name", "None"),
        ("LoRA Stacker", "lora_name_1", "none"),
        ("TrainLoraNode", "existing_lora", "[None]"),
        ("Efficient Loader", "vae_name", "Baked VAE"),
        ("ClownModelLoader", "clip_name2_opt", ".none"),
        ("ClownModelLoader", "vae_name", ".use_ckpt_vae"),
        ("HighRes-Fix Script", "hires_ckpt_name", "(use same)"),
        ("ImpactWildcardEncode", "Select to add LoRA", "Select the LoRA to add to the text"),
        ("easy fullLoader", "config_name", "Default"),
        ("DownloadAndLoadHyVideoTextEncoder", "clip_model", "disabled"),
    ],
)
def test_e9_words_for_no_file_are_no_reference(
    schema: NodeSchema, class_type: str, name: str, value: str
) -> None:
    assert refs(schema, node(class_type, {name: value})) == ()


@pytest.mark.parametrize(
    ("class_type", "name", "value", "kind"),
    [
        ("NunchakuFluxDiTLoader", "model_path", "svdq-int4-flux.1-dev", Kind.DIRECTORY),
        ("NunchakuFluxDiTLoader", "model_path", "svdq-int4_r32-flux.1-dev.safetensors", Kind.FILE),
        ("DiffusersLoader", "model_path", "sd15", Kind.DIRECTORY),
    ],
)
def test_e10_a_directory_is_a_model(
    schema: NodeSchema, class_type: str, name: str, value: str, kind: Kind
) -> None:
    (found,) = refs(schema, node(class_type, {name: value}))

    assert found.kind is kind
    assert found.folder in {"diffusion_models", "diffusers"}


@pytest.mark.parametrize(
    ("class_type", "name", "value", "folder"),
    [
        ("INPAINT_LoadFooocusInpaint", "patch", "inpaint_v26.fooocus.patch", "inpaint"),
        ("ReActorFaceSwap", "swap_model", "inswapper_128.onnx", "insightface"),
        ("TensorRTLoader", "unet_name", "x.engine", "tensorrt"),
        ("LoadMediaPipeFaceLandmarker", "model_name", "face.task", "detection"),
    ],
)
def test_e11_unusual_endings_are_models(
    schema: NodeSchema, class_type: str, name: str, value: str, folder: str
) -> None:
    found = refs(schema, node(class_type, {name: value}))

    assert brief(tuple(one for one in found if one.input)) == [(name, folder, value)]


def test_e12_a_config_is_a_file_too(schema: NodeSchema) -> None:
    found = refs(schema, node("CheckpointLoader", {"config_name": "v1.yaml", "ckpt_name": "a.ckpt"}))

    assert brief(found) == [("config_name", "configs", "v1.yaml"), ("ckpt_name", "checkpoints", "a.ckpt")]


@pytest.mark.parametrize(
    ("value", "folder", "path"),
    [
        ("bbox/face_yolov8m.pt", "ultralytics_bbox", "face_yolov8m.pt"),
        ("segm/person.pt", "ultralytics_segm", "person.pt"),
        ("bbox\\own\\x.pt", "ultralytics_bbox", "own/x.pt"),
        ("face_yolov8m.pt", "ultralytics_bbox", "face_yolov8m.pt"),
    ],
)
def test_e13_the_first_part_of_the_name_chooses_the_folder(
    schema: NodeSchema, value: str, folder: str, path: str
) -> None:
    (found,) = refs(schema, node("UltralyticsDetectorProvider", {"model_name": value}))

    assert (found.name, found.folder, found.path) == (value, folder, path)


def test_e14_a_packs_own_key_over_old_folders_is_the_key_of_today(schema: NodeSchema) -> None:
    assert brief(refs(schema, node("UnetLoaderGGUF", {"unet_name": "x.gguf"}))) == [
        ("unet_name", "diffusion_models", "x.gguf")
    ]


def test_e15_a_lora_that_is_switched_off_is_inactive(schema: NodeSchema) -> None:
    rows = {
        "PowerLoraLoaderHeaderWidget": {"type": "PowerLoraLoaderHeaderWidget"},
        "lora_1": {"on": False, "lora": "a.safetensors", "strength": 1},
        "lora_2": {"on": True, "lora": "b.safetensors", "strength": 1},
        "lora_3": {"on": True, "lora": "None", "strength": 1},
    }
    found = refs(schema, node("Power Lora Loader (rgthree)", rows))

    assert [(r.input, r.name, r.folder, r.kind, r.active) for r in found] == [
        ("lora_1", "a.safetensors", "loras", Kind.FILE, False),
        ("lora_2", "b.safetensors", "loras", Kind.FILE, True),
    ]


def test_e15_the_same_rows_stand_in_a_ui_file_between_header_widgets(schema: NodeSchema) -> None:
    widgets = [
        {},
        {"type": "PowerLoraLoaderHeaderWidget"},
        {"on": True, "lora": "a.safetensors", "strength": 1, "strengthTwo": None},
        {"on": False, "lora": "b.safetensors", "strength": 1},
        {},
        "",
    ]
    found = refs(schema, node("Power Lora Loader (rgthree)", {WIDGETS: {"__value__": widgets}}))

    assert [(r.input, r.name, r.active) for r in found] == [
        ("lora_1", "a.safetensors", True),
        ("lora_2", "b.safetensors", False),
    ]


def test_e16_slots_that_are_not_used_are_inactive(schema: NodeSchema) -> None:
    stacker = {"input_mode": "simple", "lora_count": 1, "lora_name_1": "a.safetensors"}
    found = refs(
        schema,
        node("LoRA Stacker", {**stacker, "lora_name_2": "b.safetensors"}),
        node(
            "CR LoRA Stack",
            {"switch_1": "Off", "lora_name_1": "c.pt", "switch_2": "On", "lora_name_2": "d.pt"},
        ),
        node("easy loraStack", {"toggle": False, "num_loras": 1, "lora_1_name": "e.pt"}),
    )

    assert [(r.name, r.active) for r in found] == [
        ("a.safetensors", True),
        ("b.safetensors", False),
        ("c.pt", False),
        ("d.pt", True),
        ("e.pt", False),
    ]


def test_e16_the_same_in_a_list_of_widgets_without_names(schema: NodeSchema) -> None:
    stacker = ["simple", 1, "a.safetensors", 1, 1, 1, "b.safetensors", 1, 1, 1]
    stack = ["Off", "c.pt", 1, 1, "On", "d.pt", 1, 1, "Off", "None", 1, 1]
    found = refs(
        schema, node("LoRA Stacker", {WIDGETS: stacker}), node("CR LoRA Stack", {WIDGETS: stack}, at="2")
    )

    assert [(r.input, r.name, r.active) for r in found] == [
        ("lora_name_1", "a.safetensors", True),
        ("lora_name_2", "b.safetensors", False),
        ("lora_name_1", "c.pt", False),
        ("lora_name_2", "d.pt", True),
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("(embedding:EasyNegative:1.2), cat", ["EasyNegative"]),
        ("catembedding:foo", []),
        ("embedding:sub/foo embedding:missing", ["sub/foo", "missing"]),
        ("embedding:EasyNegative.pt", ["EasyNegative.pt"]),
    ],
    ids=["e17", "e18", "e19", "e17-suffix"],
)
def test_e17_e18_e19_embeddings_are_found_where_their_word_starts(
    schema: NodeSchema, text: str, names: list[str]
) -> None:
    for class_type in ("CLIPTextEncode", "Text Multiline", "SomeUnknownText"):
        found = refs(schema, node(class_type, {"text": text}))
        assert [(r.name, r.folder, r.kind) for r in found] == [
            (name, "embeddings", Kind.EMBEDDING) for name in names
        ]


def test_e18_text_is_scanned_where_it_stands_not_where_it_is_encoded(schema: NodeSchema) -> None:
    found = refs(
        schema,
        node("Text Multiline", {WIDGETS: ["embedding:a"]}),
        node("CLIPTextEncode", {"text": Link(NodeId("1"), 0)}, at="2"),
    )

    assert [(r.node, r.input, r.name) for r in found] == [("1", "text", "a")]


def test_e19_a_missing_embedding_is_an_error_once_the_server_has_been_asked(schema: NodeSchema) -> None:
    text = node("CLIPTextEncode", {"text": "embedding:sub/foo embedding:missing"})
    found = told(schema.with_folders(schema.folders, embeddings=["sub\\foo.pt"]), text)

    assert codes(found) == {"missing_embedding": Severity.ERROR}
    assert [finding.message.split("'")[1] for finding in found] == ["missing"]
    assert codes(told(schema, text)) == {}


def test_e20_all_tags_of_a_wildcard_text_may_be_needed(schema: NodeSchema) -> None:
    text = "[<lora:a>|<lora:b:0.7:0.5:LBW=…>] __faces__"
    encode = node("ImpactWildcardEncode", {"wildcard_text": text, "populated_text": text})

    assert [(r.name, r.folder, r.kind) for r in refs(schema, encode)] == [
        ("a", "loras", Kind.LORA_TEXT),
        ("b", "loras", Kind.LORA_TEXT),
    ]
    assert codes(told(schema, encode)) == {"wildcard_unresolved": Severity.WARNING}


def test_e20_tags_of_a_text_that_is_linked_to_a_reader_count(schema: NodeSchema) -> None:
    found = refs(
        schema,
        node("Text Multiline", {"text": "<lora:a:1>"}),
        node("ImpactWildcardEncode", {"wildcard_text": Link(NodeId("1"), 0)}, at="2"),
    )

    assert [(r.node, r.name) for r in found] == [("1", "a")]


def test_e21_comfyui_itself_ignores_tags(schema: NodeSchema) -> None:
    encode = node("CLIPTextEncode", {"text": "<lora:x:0.8>"})

    assert refs(schema, encode) == ()
    assert codes(told(schema, encode)) == {"lora_tag_ignored": Severity.INFO}
    assert codes(told(schema, node("SomeText", {"text": "<lora:x:0.8>"}))) == {
        "lora_tag_unsure": Severity.WARNING
    }


@pytest.mark.parametrize("is_on", [True, False])
def test_e22_a_lora_in_the_text_and_in_the_list_is_one(schema: NodeSchema, is_on: bool) -> None:
    widgets = [{"version": 1}, "<lora:x:1>", [{"name": "x", "strength": 1, "active": is_on}]]
    (ui,) = refs(schema, node("Lora Loader (LoraManager)", {WIDGETS: widgets}))
    (api,) = refs(
        schema,
        node("Lora Loader (LoraManager)", {"text": widgets[1], "loras": {"__value__": widgets[2]}}),
    )

    for found in (ui, api):
        assert (found.input, found.name, found.kind, found.active) == ("text", "x", Kind.LORA_TEXT, is_on)


@pytest.mark.parametrize(
    ("class_type", "name", "value"),
    [
        ("DownloadAndLoadFlorence2Model", "model", "microsoft/Florence-2-base"),
        ("CLIPSeg Model Loader", "model", "CIDAS/clipseg-rd64-refined"),
        ("DownloadAndLoadHyVideoTextEncoder", "llm_model", "Kijai/llava-llama-3-8b"),
        ("SomeUnknownThing", "repo_id", "someone/something"),
        ("DWPreprocessor", "bbox_detector", "yolox_l.onnx"),
    ],
)
def test_e23_what_is_fetched_while_it_runs_is_named(
    schema: NodeSchema, class_type: str, name: str, value: str
) -> None:
    (found,) = refs(schema, node(class_type, {name: value}))

    assert (found.kind, found.folder, found.name) == (Kind.HF_REPO, None, value)
    assert codes(told(schema, node(class_type, {name: value})))["hub_model"] is Severity.WARNING


@pytest.mark.parametrize(
    ("class_type", "folder"),
    [
        ("InstantIDFaceAnalysis", "insightface"),
        ("PulidFluxEvaClipLoader", None),
        ("BRIA_RMBG_ModelLoader_Zho", None),
        ("OpenposePreprocessor", None),
        ("LayeredDiffusionApply", "layer_model"),
        ("PulidInsightFaceLoaderMultiGPU", "insightface"),
    ],
)
def test_e24_classes_that_load_without_naming_are_known(
    schema: NodeSchema, class_type: str, folder: str | None
) -> None:
    one = node(class_type, {})
    (found,) = refs(schema, one)

    assert (found.kind, found.input, found.name, found.path) == (Kind.IMPLICIT, None, None, None)
    assert found.folder == folder
    assert codes(told(schema, one)) == {"implicit_models": Severity.WARNING}


@pytest.mark.parametrize("class_type", ["CannyEdgePreprocessor", "TilePreprocessor", "ScribblePreprocessor"])
def test_e24_a_preprocessor_without_model_is_none_of_them(schema: NodeSchema, class_type: str) -> None:
    assert refs(schema, node(class_type, {})) == ()
    assert refs(schema, node("AIO_Preprocessor", {"preprocessor": class_type})) == ()
    assert len(refs(schema, node("AIO_Preprocessor", {"preprocessor": "HEDPreprocessor"}))) == 1


def test_e24_a_class_of_which_nothing_is_known_may_load_models(schema: NodeSchema) -> None:
    found = told(schema, node("NobodyKnows", {}), node("NobodyKnows", {}, at="2"), node("Note", {}, at="3"))

    assert [(f.code, f.severity, f.node) for f in found] == [("unseen_models", Severity.WARNING, "1")]


def test_e25_a_preset_stands_for_files_by_pattern(schema: NodeSchema) -> None:
    loader = node("IPAdapterUnifiedLoader", {"preset": "PLUS FACE"})

    assert refs(schema, loader) == ()
    assert codes(told(schema, loader)) == {"preset_models": Severity.WARNING}


def test_e26_an_address_is_an_error_for_comfyuis_own_loader(schema: NodeSchema) -> None:
    url = "https://civitai.com/api/download/models/142421"
    (found,) = refs(schema, node("CheckpointLoaderSimple", {"ckpt_name": url}))

    assert (found.kind, found.folder, found.path) == (Kind.URL, None, url)
    assert codes(told(schema, node("CheckpointLoaderSimple", {"ckpt_name": url}))) == {
        "url_model": Severity.ERROR
    }
    assert codes(told(schema, node("Efficient Loader", {"ckpt_name": url}))) == {
        "url_model": Severity.WARNING
    }


def test_e26_the_password_in_an_address_is_not_shown(schema: NodeSchema) -> None:
    url = "https://me:s3cret@host/x.safetensors"
    (found,) = told(schema, node("CheckpointLoaderSimple", {"ckpt_name": url}))

    assert "s3cret" not in found.message


def test_e27_the_widget_wins_over_the_note_on_downloads(schema: NodeSchema) -> None:
    hint = ModelHint("old.safetensors", directory="checkpoints")
    loader = node("CheckpointLoaderSimple", {"ckpt_name": "new.safetensors"}, models=(hint,))

    assert brief(refs(schema, loader)) == [("ckpt_name", "checkpoints", "new.safetensors")]
    assert codes(told(schema, loader)) == {"stale_metadata": Severity.WARNING}


def test_e27_the_note_on_downloads_places_what_nothing_else_does(schema: NodeSchema) -> None:
    hint = ModelHint("m.safetensors", directory="unet")
    loader = node("SomeUnknownLoader", {WIDGETS: ["sub/m.safetensors", 1]}, models=(hint,))

    assert brief(refs(schema, loader)) == [("widgets_values.0", "diffusion_models", "sub/m.safetensors")]
    assert codes(told(schema, loader)) == {}


@pytest.mark.parametrize("name", ["a.ckpt", "a.pt", "a.pth", "a.bin", "A.PKL"])
def test_e28_pickles_are_told(schema: NodeSchema, name: str) -> None:
    assert codes(told(schema, node("LoraLoader", {"lora_name": name}))) == {"pickle": Severity.WARNING}


def test_e29_notes_are_hints_only(schema: NodeSchema) -> None:
    for class_type in ("Note", "MarkdownNote", "FancyNoteNode", "ShowText|pysssss"):
        note = node(class_type, {"text": "vae/ae.safetensors", WIDGETS: ["x.ckpt"]})
        assert refs(schema, note) == ()
        assert told(schema, note) == []


@pytest.mark.parametrize("name", ["x.safetensors ", "a%20b.safetensors", "a (1).safetensors"])
def test_e30_odd_names_are_kept_and_told(schema: NodeSchema, name: str) -> None:
    (found,) = refs(schema, node("LoraLoader", {"lora_name": name}))

    assert (found.name, found.path) == (name, name)
    assert codes(told(schema, node("LoraLoader", {"lora_name": name}))) == {"odd_name": Severity.WARNING}


def test_e30_an_odd_name_is_seen_in_an_unknown_loader_too(schema: NodeSchema) -> None:
    found = find_references([node("Unknown", {"model": "x.safetensors "})], schema)

    assert [u.name for u in found.unclassified] == ["x.safetensors "]


def test_f1_f3_f11_what_does_not_run_is_inactive_and_silent(schema: NodeSchema) -> None:
    muted = node("LoraLoader", {"lora_name": "a.ckpt"}, active=False)
    (found,) = refs(schema, muted)

    assert not found.active
    assert told(schema, muted) == []


def test_f5_a_name_that_comes_over_a_link_belongs_to_the_loader_it_feeds(schema: NodeSchema) -> None:
    found = refs(
        schema,
        node("SomeString", {"value": "a.safetensors"}),
        node("VAELoader", {"vae_name": Link(NodeId("1"), 0)}, at="2"),
    )

    assert [(r.node, r.input, r.folder) for r in found] == [("1", "value", "vae")]


def test_f7_both_values_of_a_promoted_widget_are_references(schema: NodeSchema) -> None:
    loader = node(
        "CheckpointLoaderSimple", {"ckpt_name": "A.safetensors"}, others={"ckpt_name": "B.safetensors"}
    )

    assert [(r.name, r.active) for r in refs(schema, loader)] == [
        ("A.safetensors", True),
        ("B.safetensors", True),
    ]


def test_f16_a_widget_that_a_link_replaced_does_not_count(schema: NodeSchema) -> None:
    widgets = ["stale.safetensors", "v.safetensors", -1, "None"]
    loader = node("Efficient Loader", {"ckpt_name": Link(NodeId("9"), 0), WIDGETS: widgets})

    assert brief(refs(schema, loader)) == [("vae_name", "vae", "v.safetensors")]


def test_f18_every_choice_of_a_dynamic_prompt_is_scanned(schema: NodeSchema) -> None:
    encode = node("CLIPTextEncode", {"text": "a {embedding:red|embedding:blue} // x"})

    assert [r.name for r in refs(schema, encode)] == ["red", "blue"]


@pytest.mark.parametrize(
    ("widgets", "found"),
    [
        (["c.ckpt", "Baked VAE", -1, "l.safetensors", 1, 1, "p", "n"], ["ckpt_name", "lora_name"]),
        (["c.ckpt", "v.pt", -1, "None", 1, 1, "embedding:e", "n"], ["ckpt_name", "vae_name", "positive"]),
        ({"ckpt_name": "c.ckpt", "lora_name": "l.pt"}, ["ckpt_name", "lora_name"]),
        ([5, "c.ckpt"], ["ckpt_name"]),
    ],
)
def test_values_without_names_get_those_of_the_table(
    schema: NodeSchema, widgets: Any, found: list[str]
) -> None:
    assert [r.input for r in refs(schema, node("Efficient Loader", {WIDGETS: widgets}))] == found


def test_a_loader_that_keeps_its_choice_in_an_object_is_read(schema: NodeSchema) -> None:
    chosen = {"content": "a.safetensors", "image": "a.png"}
    found = refs(schema, node("LoraLoader|pysssss", {"lora_name": chosen}))

    assert brief(found) == [("lora_name", "loras", "a.safetensors")]


def test_a_name_that_the_editor_only_writes_into_a_text_is_inactive(schema: NodeSchema) -> None:
    (found,) = refs(schema, node("ToDetailerPipe", {"Select to add LoRA": "a.safetensors"}))

    assert (found.folder, found.active) == ("loras", False)


def test_models_listed_in_lines_of_text_are_not_silent(schema: NodeSchema) -> None:
    lines = "none,none,0,0\nWAN\\high.safetensors,WAN\\low.safetensors,1,1"
    found = find_references([node("SomeComparer", {"rows": lines})], schema)

    assert [u.name for u in found.unclassified] == ["WAN\\high.safetensors", "WAN\\low.safetensors"]
    assert refs(schema, node("CLIPTextEncode", {"text": lines})) == ()


def test_names_of_results_are_no_models(schema: NodeSchema) -> None:
    assert refs(schema, node("SomeSaver", {"filename_prefix": "out.safetensors"})) == ()


def test_what_lies_deep_is_found(schema: NodeSchema) -> None:
    value: Any = "x.safetensors"
    for _ in range(40):  # of the 100 levels that strict reading lets in, two each
        value = {"a": [value]}

    assert len(find_references([node("Odd", {"v": value})], schema).unclassified) == 1
