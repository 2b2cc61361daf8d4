"""Textual inversions named in prompts: `embedding:NAME`.

Source: `tokenize_with_weights` in ComfyUI's comfy/sd1_clip.py. A word must start with the token: at
the start of the text, of a line, of a bracket, or after a space. The name ends at white space, `<`
or `[`; commas around it are dropped; a weight belongs to its bracket, not to the name.
"""

import re

TOKEN = "embedding:"  # noqa: S105 - a word of the prompt language, no secret
SUFFIXES = (".safetensors", ".pt", ".bin")
"""What ComfyUI tries, in this order, when the name has none."""

_NAME = re.compile(r"(?:^|(?<=[\s()]))embedding:((?:\\[()]|[^\s<\[()])+)(\)?)")
_WEIGHT = re.compile(r":[+-]?(?:\d+\.?\d*|\.\d+)$")
_ESCAPED = re.compile(r"\\([()])")


def find_embeddings(text: str) -> tuple[str, ...]:
    """The names in a prompt, each once, in order. The suffix is left as it is written."""
    if TOKEN not in text:
        return ()
    names = (_clean(match.group(1), in_bracket=bool(match.group(2))) for match in _NAME.finditer(text))
    return tuple(dict.fromkeys(name for name in names if name))


def _clean(word: str, *, in_bracket: bool) -> str:
    if in_bracket:
        word = _WEIGHT.sub("", word)
    return _ESCAPED.sub(r"\1", word.strip(","))
