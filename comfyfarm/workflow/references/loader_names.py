"""What the inputs of loaders are called everywhere, for classes of which nothing else is known."""

import re

_FOLDERS = {
    "checkpoints": r"(?:base_|refiner_|hires_|secondary_)?(?:ckpt|checkpoint)(?:_name)?(?:_?\d+)?(?:_name)?",
    "loras": r"loras?(?:_name)?(?:_?\d+)?(?:_name)?(?:\.lora)?",
    "vae": r"(?:refiner_)?vae_name(?:_?\d+)?|vae",
    "diffusion_models": r"unet(?:_name)?(?:_?\d+)?|diffusion_model(?:_name)?|dit_name",
    "text_encoders": (
        r"clip_name(?:_?\d+)?(?:_opt)?|text_encoder(?:_name)?(?:_?\d+)?|t5(?:xxl)?_name|clip_[lg]_name"
    ),
    "controlnet": r"control_?net(?:_name)?(?:_?\d+)?",
    "clip_vision": r"clip_vision(?:_name)?(?:_?\d+)?",
    "style_models": r"style_model(?:_name)?",
    "gligen": r"gligen_name",
    "hypernetworks": r"hypernetwork_name",
    "upscale_models": r"(?:secondary_)?upscale_model(?:_name)?(?:_?\d+)?|upscaler_name",
    "ipadapter": r"ip_?adapter(?:_name|_file|_model)?",
    "instantid": r"instantid_file",
    "pulid": r"pulid_file",
    "sams": r"sam_model(?:_name)?",
    "photomaker": r"photomaker_model_name",
    "animatediff_models": r"motion_model(?:_name)?",
    "audio_encoders": r"audio_encoder_name",
    "model_patches": r"model_patch(?:_name)?",
}
_BY_NAME = re.compile("|".join(f"(?P<{folder}>{text})" for folder, text in _FOLDERS.items()))
_HUB_NAME = re.compile(
    r"(?:.*_)?(?:repo|repo_id|repo_name|model_id|hf_model|hf_repo|hub_model|model_repo|pretrained_model)(?:_.*)?",
    re.IGNORECASE,
)
_HUB_CLASS = re.compile(r"DownloadAndLoad|Florence|HuggingFace|Hub|Diffusers", re.IGNORECASE)


def folder_by_name(name: str) -> str | None:
    """The folder that an input of this name means in every pack; None for `model_name` and such."""
    match = _BY_NAME.fullmatch(name)
    return match.lastgroup if match is not None else None


def is_hub_input(class_type: str, name: str) -> bool:
    """Whether a text `user/name` in this input is a repository of a model hub."""
    if _HUB_NAME.fullmatch(name):
        return True
    return _HUB_CLASS.search(class_type) is not None and (
        "model" in name or name.startswith("widgets_values")
    )
