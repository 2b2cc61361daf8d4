"""Rows E of the list of tricky cases: names of models; see `test_tricky_rows.py`."""

import hashlib
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.lock.catalogue import Catalogue, CatalogueEntry, collect
from comfyfarm.lock.lockfile import Lock
from comfyfarm.lock.pins import make_lock
from comfyfarm.lock.resolve import Unresolved
from comfyfarm.workflow.references.find import References
from comfyfarm.workflow.schema import NodeSchema

Look = Callable[..., Any]


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def one(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"1": node(class_type, **inputs)}


def ui(class_type: str, *values: Any, **more: Any) -> dict[str, Any]:
    return {"nodes": [{"id": 1, "type": class_type, "widgets_values": list(values), **more}], "links": []}


def listed(*files: str) -> Catalogue:
    """A catalogue of these files, each of its own content; `name#other` has another content."""
    return collect(
        CatalogueEntry(
            folder=name.partition("#")[0].partition("/")[0],
            path=name.partition("#")[0].partition("/")[2],
            sha256=hashlib.sha256(name.encode()).hexdigest(),
            size=1,
        )
        for name in files
    )


def locked(seen: Any, *files: str, **more: Any) -> list[str]:
    """What a lock of the report holds, made out of a catalogue of these files."""
    return [f"{m.folder}/{m.path}" for m in make_lock(needs(seen), listed(*files), **more).models]


def needs(seen: Any) -> References:
    return References(references=seen.report.references, unclassified=seen.report.unclassified)


def server(class_type: str, name: str, *options: str) -> NodeSchema:
    """A running server whose loader offers these."""
    made = {"input": {"required": {name: [[*options], {}]}}, "output": [], "output_node": True}
    return NodeSchema.from_object_info({class_type: made}, name="http://h", live=True)


def test_e1_the_key_of_every_loader_is_known(look: Look) -> None:
    assert look(one("VAELoader", vae_name="ae.safetensors")).models == ["1.vae_name vae/ae.safetensors file"]


def test_e2_backslashes_are_turned_in_the_path_and_refused(look: Look) -> None:
    seen = look(one("UNETLoader", unet_name="Wan\\x.safetensors", weight_dtype="default"))
    windows = server("UNETLoader", "unet_name", "Wan\\x.safetensors")

    assert seen.report.references[0].name == "Wan\\x.safetensors"
    assert seen.models == ["1.unet_name diffusion_models/Wan/x.safetensors file"]
    assert "E separator 1.unet_name" in seen.says_where
    assert locked(seen, "diffusion_models/Wan/x.safetensors") == ["diffusion_models/Wan/x.safetensors"]
    assert look(one("UNETLoader", unet_name="Wan\\x.safetensors"), schema=windows).says == set()


@pytest.mark.parametrize(
    "name", ["📷-v1.x\\m.safetensors", "新世界 _v6.0.safetensors", "cafe\u0301.safetensors"]
)
def test_e3_names_keep_their_bytes_and_compare_composed(look: Look, name: str) -> None:
    (found,) = look(one("LoraLoaderModelOnly", lora_name=name, strength_model=1.0)).report.references

    assert (found.name, found.path) == (name, name.replace("\\", "/"))
    assert found.key == ("loras", unicodedata.normalize("NFC", name.replace("\\", "/")))


def test_e4_another_case_is_another_file_with_a_suggestion(look: Look) -> None:
    graph = one("LoraLoaderModelOnly", lora_name="Lora/X.safetensors")
    seen = look(graph, schema=server("LoraLoaderModelOnly", "lora_name", "lora/x.safetensors"))

    assert seen.says_where == {"E not_in_list 1.lora_name"}
    assert "choose 'lora/x.safetensors'" in seen.words("not_in_list")
    with pytest.raises(Unresolved, match=r"near: loras/lora/x\.safetensors"):
        locked(seen, "loras/lora/x.safetensors")


def test_e5_one_basename_in_two_folders_is_two_entries(look: Look) -> None:
    paths = [f"{name}/diffusion_pytorch_model.safetensors" for name in ("canny", "instantid")]
    seen = look({str(n): node("ControlNetLoader", control_net_name=path) for n, path in enumerate(paths)})

    assert [r.path for r in seen.report.references] == paths
    assert locked(seen, *(f"controlnet/{path}" for path in paths)) == [f"controlnet/{path}" for path in paths]


def test_e6_one_name_as_checkpoint_and_diffusion_model_is_two_entries(look: Look) -> None:
    name = "flux1-dev-fp8.safetensors"
    graph = {"1": node("CheckpointLoaderSimple", ckpt_name=name), "2": node("UNETLoader", unet_name=name)}
    files = [f"checkpoints/{name}", f"diffusion_models/{name}"]

    assert look(graph).models == [f"1.ckpt_name {files[0]} file", f"2.unet_name {files[1]} file"]
    assert locked(look(graph), *files) == files


def test_e7_one_name_of_two_contents_is_ambiguous_until_a_lock_pins_one(look: Look) -> None:
    seen = look(one("VAELoader", vae_name="ae.safetensors"))
    files = ("vae/ae.safetensors", "vae/ae.safetensors#again")
    before = Lock.model_validate({"models": [listed(files[1]).entries[0].model_dump()]})

    with pytest.raises(Unresolved) as caught:
        locked(seen, *files)
    assert [(f.code, f.severity) for f in caught.value.findings] == [("ambiguous_hash", "error")]
    pinned = make_lock(needs(seen), listed(*files), pinned=before)
    assert [m.sha256 for m in pinned.models] == [hashlib.sha256(files[1].encode()).hexdigest()]


def test_e8_taesd_is_an_encoder_and_a_decoder_and_pixel_space_no_file(look: Look) -> None:
    seen = look(one("VAELoader", vae_name="taesd"))
    files = ["vae_approx/taesd_decoder.safetensors", "vae_approx/taesd_encoder.safetensors"]

    assert seen.models == ["1.vae_name vae_approx/taesd file"]
    assert locked(seen, *files) == files
    assert look(one("VAELoader", vae_name="pixel_space")).models == []


@pytest.mark.parametrize(
    ("class_type", "name", "value"),
    [
        ("LoraLoader", "lora_name", "None"),
        ("LoRA Stacker", "lora_name_1", "none"),
        ("TrainLoraNode", "existing_lora", "[None]"),
        ("Efficient Loader", "vae_name", "Baked VAE"),
        ("VAELoader", "vae_name", "Baked VAE"),
        ("ClownModelLoader", "clip_name2_opt", ".none"),
        ("ClownModelLoader", "vae_name", ".use_ckpt_vae"),
        ("ImpactWildcardEncode", "Select to add LoRA", "Select the LoRA to add to the text"),
    ],
)
def test_e9_words_for_no_file_are_no_reference(look: Look, class_type: str, name: str, value: str) -> None:
    seen = look(one(class_type, **{name: value}))

    assert (seen.models, seen.loose) == ([], [])


def test_e10_a_directory_is_a_reference_and_locks_as_its_files(look: Look) -> None:
    seen = look(
        {
            "1": node("NunchakuFluxDiTLoader", model_path="svdq"),
            "2": node("DiffusersLoader", model_path="sd15"),
        }
    )
    files = [
        "diffusers/sd15/model_index.json",
        "diffusion_models/svdq/a.json",
        "diffusion_models/svdq/b.safetensors",
    ]

    assert seen.models == [
        "1.model_path diffusion_models/svdq directory",
        "2.model_path diffusers/sd15 directory",
    ]
    assert locked(seen, *files) == files


def test_e11_unusual_endings_are_models(look: Look) -> None:
    inpaint = look(one("INPAINT_LoadFooocusInpaint", patch="inpaint_v26.fooocus.patch"))
    endings = ["onnx", "engine", "trt", "task", "npz", "pt2", "pkl"]
    odd = look(one("SomeLoader", **{end: f"m.{end}" for end in endings}))

    assert inpaint.models == ["1.patch inpaint/inpaint_v26.fooocus.patch file"]
    assert odd.loose == [f"1.{end} m.{end}" for end in endings]


def test_e12_a_config_is_a_file_too(look: Look) -> None:
    assert look(one("CheckpointLoader", config_name="v1.yaml", ckpt_name="a.safetensors")).models == [
        "1.config_name configs/v1.yaml file",
        "1.ckpt_name checkpoints/a.safetensors file",
    ]


def test_e13_the_first_part_chooses_the_folder(look: Look) -> None:
    seen = look(one("UltralyticsDetectorProvider", model_name="bbox/face_yolov8m.pt"))

    assert seen.models == ["1.model_name ultralytics_bbox/face_yolov8m.pt file"]
    assert seen.report.references[0].name == "bbox/face_yolov8m.pt"


@pytest.mark.parametrize("folder", ["diffusion_models", "unet", "unet_gguf"])
def test_e14_a_packs_key_over_old_folders_finds_the_file_in_each(look: Look, folder: str) -> None:
    seen = look(one("UnetLoaderGGUF", unet_name="x.gguf"))

    assert seen.models == ["1.unet_name diffusion_models/x.gguf file"]
    assert locked(seen, f"{folder}/x.gguf") == ["diffusion_models/x.gguf"]


def test_e15_a_lora_that_is_switched_off_is_inactive(look: Look) -> None:
    rows = [
        {"on": is_on, "lora": f"{name}.safetensors", "strength": 1}
        for is_on, name in ((False, "a"), (True, "b"))
    ]
    api = look(one("Power Lora Loader (rgthree)", lora_1=rows[0], lora_2=rows[1]))
    saved = look(
        ui("Power Lora Loader (rgthree)", {}, {"type": "PowerLoraLoaderHeaderWidget"}, *rows, {}, "")
    )

    for seen in (api, saved):
        assert seen.models == ["1.lora_1 loras/a.safetensors file off", "1.lora_2 loras/b.safetensors file"]


def test_e16_slots_beyond_the_count_and_switched_off_are_inactive(look: Look) -> None:
    slots = [["a.safetensors", 1, 1, 1], ["b.safetensors", 1, 1, 1], *([["None", 1, 1, 1]] * 47)]
    stacker = ui("LoRA Stacker", "simple", 1, *(value for slot in slots for value in slot))
    switch = one(
        "CR LoRA Stack",
        switch_1="Off",
        lora_name_1="c.safetensors",
        switch_2="On",
        lora_name_2="d.safetensors",
    )
    named = one("LoRA Stacker", lora_count=1, lora_name_1="a.safetensors", lora_name_2="b.safetensors")

    for seen in (look(stacker), look(named)):
        assert seen.models == [
            "1.lora_name_1 loras/a.safetensors file",
            "1.lora_name_2 loras/b.safetensors file off",
        ]
    assert look(switch).models == [
        "1.lora_name_1 loras/c.safetensors file off",
        "1.lora_name_2 loras/d.safetensors file",
    ]


def test_e17_an_embedding_in_a_bracket_with_a_weight(look: Look) -> None:
    seen = look(one("CLIPTextEncode", text="(embedding:EasyNegative:1.2), cat, embedding:b.pt,"))

    assert seen.models == ["1.text embeddings/EasyNegative embedding", "1.text embeddings/b.pt embedding"]
    assert locked(
        seen, "embeddings/EasyNegative.safetensors", "embeddings/EasyNegative.pt", "embeddings/b.pt"
    ) == [
        "embeddings/EasyNegative.safetensors",
        "embeddings/b.pt",
    ]


def test_e18_the_word_must_begin_with_the_token_and_any_text_counts(look: Look) -> None:
    made = {
        "1": node("Text Multiline", text="embedding:a, x"),
        "2": node("Text Concatenate", text_a=["1", 0], text_b="embedding:b"),
        "3": node("CLIPTextEncode", text=["2", 0], clip=["4", 1]),
    }

    assert look(one("CLIPTextEncode", text="catembedding:foo")).models == []
    assert look(made).models == ["1.text embeddings/a embedding", "2.text_b embeddings/b embedding"]


def test_e19_an_embedding_that_is_not_there_is_an_error(look: Look, schema: NodeSchema) -> None:
    graph = one("CLIPTextEncode", text="embedding:sub/foo embedding:missing")
    asked = schema.with_folders(schema.folders, embeddings=["sub/foo.pt"])
    seen = look(graph, schema=asked)

    assert seen.models == ["1.text embeddings/sub/foo embedding", "1.text embeddings/missing embedding"]
    assert "E missing_embedding 1.text" in seen.says_where
    assert "'missing'" in seen.words("missing_embedding")
    with pytest.raises(Unresolved, match=r"embeddings/missing \(node 1"):
        locked(seen, "embeddings/sub/foo.pt")


def test_e20_any_of_the_loras_of_a_wildcard_text_may_be_chosen(look: Look) -> None:
    text = "[<lora:a>|<lora:b:0.7:0.5:LBW=…>] __faces__"
    seen = look(one("ImpactWildcardEncode", wildcard_text=text))

    assert seen.models == ["1.wildcard_text loras/a lora_text", "1.wildcard_text loras/b lora_text"]
    assert "W wildcard_unresolved 1.wildcard_text" in seen.says_where
    assert locked(seen, "loras/sub/a.safetensors", "loras/b.pt") == ["loras/b.pt", "loras/sub/a.safetensors"]


def test_e21_comfyui_itself_ignores_a_tag(look: Look) -> None:
    seen = look(one("CLIPTextEncode", text="<lora:x:0.8>"))

    assert seen.models == []
    assert "I lora_tag_ignored 1.text" in seen.says_where


def test_e22_a_lora_in_text_and_list_is_one(look: Look) -> None:
    row = [{"name": "x", "strength": 1, "active": True}]
    seen = look(ui("Lora Loader (LoraManager)", {"version": 1}, "<lora:x:1>", row))

    assert seen.models == ["1.text loras/x lora_text"]


def test_e23_a_hub_repository_needs_a_revision(look: Look) -> None:
    seen = look(one("DownloadAndLoadFlorence2Model", model="microsoft/Florence-2-base"))

    assert seen.models == ["1.model None/microsoft/Florence-2-base hf_repo"]
    assert "W hub_model 1.model" in seen.says_where
    with pytest.raises(Unresolved, match="microsoft/Florence-2-base"):
        locked(seen)


@pytest.mark.parametrize(
    ("class_type", "known"),
    [
        ("InstantIDFaceAnalysis", "antelopev2"),
        ("PulidFluxEvaClipLoader", "EVA02_CLIP_L_336_psz14_s6B.pt"),
        ("OpenposePreprocessor", "body_pose_model.pth, hand_pose_model.pth, facenet.pth"),
        ("BRIA_RMBG_ModelLoader_Zho", "RMBG-1.4/model.pth"),
        ("DepthAnythingPreprocessor", ""),
        ("SomeNewPreprocessor", ""),
    ],
)
def test_e24_models_that_no_value_names(look: Look, class_type: str, known: str) -> None:
    seen = look(one(class_type, resolution=512))

    assert [(r.name, r.kind.value, r.active) for r in seen.report.references] == [(None, "implicit", True)]
    assert "W implicit_models 1.None" in seen.says_where
    assert known in seen.words("implicit_models")


def test_e25_a_preset_stands_for_files_by_pattern(look: Look) -> None:
    seen = look(one("IPAdapterUnifiedLoader", preset="PLUS FACE"))

    assert seen.models == []
    assert "W preset_models 1.preset" in seen.says_where


def test_e26_an_address_is_refused_by_comfyui_itself(look: Look) -> None:
    url = "https://civitai.com/api/download/models/142421"
    core, other = look(one("CheckpointLoaderSimple", ckpt_name=url)), look(one("OtherLoader", ckpt_name=url))

    assert core.models == other.models == [f"1.ckpt_name None/{url} url"]
    assert "E url_model 1.ckpt_name" in core.says_where
    assert "W url_model 1.ckpt_name" in other.says_where


def test_e27_a_note_on_downloads_that_names_another_file_is_stale(look: Look) -> None:
    notes = {"models": [{"name": "other.safetensors", "url": "https://h/other", "directory": "vae"}]}
    seen = look(ui("VAELoader", "ae.safetensors", properties=notes))

    assert seen.models == ["1.vae_name vae/ae.safetensors file"]
    assert "W stale_metadata 1.None" in seen.says_where


@pytest.mark.parametrize("ending", ["ckpt", "pt", "pth", "bin"])
def test_e28_a_pickle_is_told(look: Look, ending: str) -> None:
    assert "W pickle 1.ckpt_name" in look(one("CheckpointLoaderSimple", ckpt_name=f"m.{ending}")).says_where
    assert "W pickle 1.text" in look(one("CLIPTextEncode", text=f"embedding:m.{ending}")).says_where
    assert "W pickle 1.thing" in look(one("OtherLoader", thing=f"m.{ending}")).says_where
    assert "W pickle" not in look(one("VAELoader", vae_name="m.safetensors")).says


def test_e29_notes_name_nothing(look: Look) -> None:
    text = "get [ae.safetensors](https://h/ae.safetensors) embedding:x <lora:y:1>"
    notes = [
        {"id": n, "type": kind, "widgets_values": [text]} for n, kind in ((2, "Note"), (3, "MarkdownNote"))
    ]
    seen = look({"nodes": [*ui("VAELoader", "vae.safetensors")["nodes"], *notes], "links": []})

    assert (seen.models, seen.loose) == (["1.vae_name vae/vae.safetensors file"], [])


@pytest.mark.parametrize(
    "name", ["x.safetensors ", "x .safetensors", "a%20b.safetensors", "a (1).safetensors"]
)
def test_e30_odd_names_are_told_and_found_as_they_stand_first(look: Look, name: str) -> None:
    seen = look(one("CheckpointLoaderSimple", ckpt_name=name))
    plain = name.strip().replace("%20", " ")

    assert "W odd_name 1.ckpt_name" in seen.says_where
    assert seen.models == [f"1.ckpt_name checkpoints/{name} file"]
    made = make_lock(needs(seen), listed(f"checkpoints/{plain}", f"checkpoints/{name}"))
    assert [m.sha256 for m in made.models] == [hashlib.sha256(f"checkpoints/{name}".encode()).hexdigest()]
