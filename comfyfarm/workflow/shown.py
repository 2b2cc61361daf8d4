"""Values in messages, cut short: widgets hold whole pictures."""

import json
from collections.abc import Mapping

from comfyfarm.addresses import mask
from comfyfarm.workflow.node import Value

_LENGTH = 60  # characters of a value in a message


def shown(value: Value) -> str:
    """The value as a message has it: short, on one line, without passwords."""
    if isinstance(value, str):
        cut = value[: _LENGTH + 1]
        text = repr(mask(cut) if "://" in cut else cut)
    elif isinstance(value, tuple | Mapping):
        text = json.dumps(value, ensure_ascii=False, default=dict)
    else:
        text = "null" if value is None else repr(value)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"
