"""What the editor does to texts when it queues, and a file therefore does not hold."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.frontend_tokens import find_token
from comfyfarm.workflow.input_spec import InputSpec
from comfyfarm.workflow.ui import notes

_CHOICE = re.compile(r"(?<!\\)\{[^{}|]*\|[^{}]*\}")


def text_findings(node: str, inputs: Mapping[str, Any], specs: Mapping[str, InputSpec]) -> Iterator[Finding]:
    """Choices `{a|b}` and tokens such as `%date:yyyy%` in a node's own values."""
    for name, value in inputs.items():
        if not isinstance(value, str):
            continue
        spec = specs.get(name)
        if "{" in value and spec is not None and spec.dynamic_prompts and _CHOICE.search(value):
            yield notes.dynamic_prompt(node, name)
        if "%" in value and (token := find_token(name, value)) is not None:
            yield notes.frontend_token(node, name, token)
