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

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_BY_WORD = {
    "lora": "loras",
    "loras": "loras",
    "checkpoint": "checkpoints",
    "ckpt": "checkpoints",
    "vae": "vae",
    "controlnet": "controlnet",
}
_OTHER_KINDS = frozenset(
    {"motion", "diff", "audio", "adapter", "ip", "clip", "unet", "embedding", "upscale", "image"}
)
"""Words of classes that load something else, or from a folder of their own."""


def folder_by_name(name: str) -> str | None:
    """The folder that an input of this name means in every pack; None for `model_name` and such."""
    match = _BY_NAME.fullmatch(name)
    return match.lastgroup if match is not None else None


def folder_by_class(class_type: str) -> str | None:
    """The folder that a loader of this name reads in every pack; None when it may read another as well."""
    plain = class_type.replace("LoRA", "Lora").replace("ControlNet", "Controlnet")
    words = {word.lower() for word in _WORD.findall(plain)}
    found = {_BY_WORD[word] for word in words & _BY_WORD.keys()}
    if len(found) != 1 or words.isdisjoint({"load", "loader"}) or words & _OTHER_KINDS:
        return None
    return found.pop()
