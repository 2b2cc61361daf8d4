"""Which texts `user/name` are repositories of a model hub, by what their input and class are called."""

import re

from comfyfarm.workflow.file_node import WIDGETS

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SURE_NAME = re.compile(
    r"(?:.*_)?(?:repo|repo_id|repo_name|model_id|hf_model|hf_repo|hub_model|model_repo|pretrained_model)(?:_.*)?",
    re.IGNORECASE,
)
_SURE_CLASS = re.compile(r"DownloadAndLoad|Florence|HuggingFace|Hub|Diffusers", re.IGNORECASE)
_LIKELY_NAME = re.compile(r"(?:.*_)?(?:model|repo|llm|vlm|caption(?:er)?|tokenizer)(?:_.*)?", re.IGNORECASE)
_LIKELY_CLASS = re.compile(r"caption|llm|vlm|llama|qwen|minicpm|moondream|whisper", re.IGNORECASE)
_LIKELY_TEXT = re.compile(
    r"(?!(?:models?|images?|videos?|audio|bbox|segm|loras|checkpoints)/)[^/]{2,}/(?=[^/]*[-\d])[^/]{3,}"
)
"""Names of models on a hub have a number or a hyphen; `Hide/Save` and `image/gif` have none."""
_SERVICE = re.compile(
    r"API|Api(?![a-z])|GPT|Gemini|Claude|OpenAI|OpenRouter|Replicate|Fal(?![a-z])|Groq|[Oo]llama|Remote"
)
"""Words of classes that ask a service, whose models are called alike."""


def is_repository(text: str) -> bool:
    """Whether the text has the form of a repository's name."""
    return _REPOSITORY.fullmatch(text) is not None


def is_hub_repository(class_type: str, name: str, text: str) -> bool:
    """Whether the text of this input is a repository: surely, or by all that it is called."""
    if not is_repository(text):
        return False
    unnamed = name.startswith(WIDGETS)
    if _SURE_NAME.fullmatch(name) or (_SURE_CLASS.search(class_type) and (unnamed or "model" in name)):
        return True
    likely = _LIKELY_CLASS.search(class_type) if unnamed else _LIKELY_NAME.fullmatch(name)
    return bool(likely and _LIKELY_TEXT.fullmatch(text)) and not _SERVICE.search(class_type)
