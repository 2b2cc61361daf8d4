"""The shipped tables of loaders."""

import json
import pickle
import re
from importlib import resources

import pytest

from comfyfarm.workflow.folders import FolderMap, approx_vae, implicit_names, modern, places_on_disk
from comfyfarm.workflow.model_input import ModelInput, Role

SHIPPED = FolderMap.shipped()
PACKS = json.loads(resources.files("comfyfarm.workflow").joinpath("pack_folders.json").read_bytes())


@pytest.mark.parametrize(
    ("class_type", "name", "folder"),
    [
        ("UnetLoaderGGUF", "unet_name", "diffusion_models"),
        ("DualCLIPLoaderGGUF", "clip_name2", "text_encoders"),
        ("IPAdapterModelLoader", "ipadapter_file", "ipadapter"),
        ("SAMLoader", "model_name", "sams"),
        ("INPAINT_LoadFooocusInpaint", "patch", "inpaint"),
        ("ReActorFaceSwap", "swap_model", "insightface"),
        ("WanVideoModelLoader", "model", "diffusion_models"),
        ("WanVideoVAELoader", "model_name", "vae"),
        ("Efficient Loader", "lora_name", "loras"),
        ("LoRA Stacker", "lora_name_17", "loras"),
        ("CR Model List", "ckpt_name5", "checkpoints"),
        ("easy loraStack", "lora_10_name", "loras"),
        ("ADE_LoadAnimateDiffModel", "model_name", "animatediff_models"),
        ("LoadFluxControlNet", "controlnet_path", "xlabs_controlnets"),
        ("NunchakuQwenImageDiTLoader", "model_name", "diffusion_models"),
        ("TensorRTLoader", "unet_name", "tensorrt"),
        ("SeedVR2LoadVAEModel", "model", "seedvr2"),
        ("UNETLoaderMultiGPU", "unet_name", "diffusion_models"),
        ("CLIPLoaderDisTorch2MultiGPU", "clip_name", "text_encoders"),
        ("UnetLoaderGGUFDisTorchMultiGPU", "unet_name", "diffusion_models"),
        ("WanVideoVAELoaderMultiGPU", "model_name", "vae"),
        ("CheckpointLoader|pysssss", "ckpt_name", "checkpoints"),
        ("SUPIR_model_loader_v2", "supir_model", "checkpoints"),
        ("ADE_AnimateDiffLoRALoader", "name", "animatediff_motion_lora"),
        ("ADE_AnimateDiffLoRALoader", "lora_name", "animatediff_motion_lora"),
        ("ControlNetLoaderAdvanced", "cnet", "controlnet"),
        ("ControlNetLoaderAdvanced", "control_net_name", "controlnet"),
        ("DiffControlNetLoaderAdvanced", "cnet", "controlnet"),
        ("ControlNetLoaderWithLoraAdvanced", "cn_lora_name", "controlnet"),
        ("PixArtCheckpointLoader", "ckpt_name", "checkpoints"),
        ("T5v11Loader", "t5v11_name", "t5"),
        ("HYDiTTextEncoderLoader", "clip_name", "text_encoders"),
        ("SD3ModelSelect", "transformer", "checkpoints"),
        ("SD3ModelSelect", "t5", "text_encoders"),
        ("ExtractFluxLoRA", "finetuned_model", "diffusion_models"),
        ("DynamiCrafterCNLoader", "ckpt_name", "controlnet"),
        ("WhisperModelLoader", "model", "audio_encoders"),
        ("AILab_YoloV8", "yolo_model", "ultralytics"),
    ],
)
def test_common_loaders_of_packs_have_a_folder(class_type: str, name: str, folder: str) -> None:
    assert FolderMap.shipped().folders(class_type, name)[0] == folder


def test_every_row_of_the_tables_can_be_read() -> None:
    for class_type, inputs in PACKS["files"].items():
        for name, given in SHIPPED.of(class_type).inputs.items():
            assert isinstance(given, ModelInput)
            has_folder = given.role not in {Role.HUB, Role.FETCHED, Role.PRESET}
            assert bool(given.folders) == has_folder, f"{class_type}.{name}"
            assert all(re.fullmatch(r"[\w-]+", folder) for folder in given.folders)
        assert inputs
    for class_type in PACKS["counted_inputs"]:
        assert SHIPPED.of(class_type).counted != SHIPPED.of("Other").counted
    for class_type, pictures in PACKS["input_files"].items():
        assert SHIPPED.asset_inputs(class_type).keys() == pictures.keys()
    for class_type in PACKS["texts"]:
        assert SHIPPED.of(class_type).texts


def test_the_tables_name_no_model_file() -> None:
    """Loaders are known, the models of any workflow are not."""
    assert not re.search(r"\.(?:safetensors|ckpt|pth|gguf|onnx|bin)\b", json.dumps(PACKS))


def test_a_short_form_that_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no input of a loader"):
        ModelInput.read("loras@x", {})


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("loras@3", ModelInput(Role.FILE, ("loras",), 3)),
        ("vae@9+3", ModelInput(Role.FILE, ("vae",), 9, 3)),
        ("~loras", ModelInput(Role.EDITOR, ("loras",))),
        ("*loras@0", ModelInput(Role.LIST, ("loras",), 0)),
        ("unet|vae", ModelInput(Role.FILE, ("diffusion_models", "vae", "unet"))),
        ("hub@1", ModelInput(Role.HUB, (), 1)),
        ("diffusers/", ModelInput(Role.DIRECTORY, ("diffusers",))),
    ],
)
def test_the_short_form_of_a_loaders_input(text: str, given: ModelInput) -> None:
    assert ModelInput.read(text, {"unet": "diffusion_models"}) == given


@pytest.mark.parametrize(
    "value",
    [
        "None",
        "none",
        "Baked VAE",
        ".none",
        ".use_ckpt_vae",
        "(use same)",
        "Default",
        "Auto: sdxl",
        "Put .pt models into /models/ultralytics",
    ],
)
def test_packs_have_many_words_for_no_file(value: str) -> None:
    assert SHIPPED.is_sentinel("Efficient Loader", "vae_name", value)
    assert not SHIPPED.is_sentinel("Efficient Loader", "vae_name", "a.vae.pt")


@pytest.mark.parametrize(
    ("key", "today"),
    [
        ("unet", "diffusion_models"),
        ("clip", "text_encoders"),
        ("unet_gguf", "diffusion_models"),
        ("vae", "vae"),
    ],
)
def test_keys_of_today(key: str, today: str) -> None:
    assert modern(key) == today


def test_an_approximate_vae_is_a_pair_or_one_file() -> None:
    assert approx_vae("taesd") == ("taesd_encoder", "taesd_decoder")
    assert approx_vae("taehv.safetensors") == ("taehv",)
    assert approx_vae("ae.safetensors") == ()


def test_a_map_goes_from_process_to_process() -> None:
    assert pickle.loads(pickle.dumps(SHIPPED)).folders("UNETLoader", "unet_name") == (  # noqa: S301 - our own
        "diffusion_models",
        "unet",
    )


def test_keys_that_packs_register_lie_below_another_folder() -> None:
    assert places_on_disk("ultralytics_bbox") == (("ultralytics", "bbox/"),)
    assert places_on_disk("mmdets_segm") == (("mmdets", "segm/"),)
    assert places_on_disk("loras") == ()


def test_what_classes_load_by_themselves_is_known_by_name() -> None:
    assert implicit_names("InsightFaceLoader") == ("buffalo_l",)
    assert implicit_names("KSampler") == ()
    assert SHIPPED.of("InsightFaceLoader").is_implicit
    assert not SHIPPED.of("KSampler").is_implicit
