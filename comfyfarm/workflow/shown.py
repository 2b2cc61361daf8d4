"""Values in messages, cut short: widgets hold whole pictures."""

import json
from collections.abc import Mapping

from comfyfarm.addresses import mask

_READ = 2000  # characters of a text that are looked at; passwords stand in front of an address


def shown(value: object, *, most: int = 60) -> str:
    """The value as a message has it: short, on one line, without passwords. `most`: characters of it."""
    if isinstance(value, str):
        text = repr(mask(value[:_READ])[: most + 1] if "://" in value[:_READ] else value[: most + 1])
    elif isinstance(value, tuple | list | Mapping):
        text = json.dumps(value, ensure_ascii=False, default=_plain)
    else:
        text = "null" if value is None else repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)
