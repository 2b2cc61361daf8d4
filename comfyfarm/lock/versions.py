"""When two versions of ComfyUI are one."""


def same_version(one: str, other: str) -> bool:
    """`0.27` stands for every `0.27.x`; a `v` in front says nothing."""
    parts = [text.removeprefix("v").split(".") for text in (one, other)]
    length = min(map(len, parts))
    return parts[0][:length] == parts[1][:length]
