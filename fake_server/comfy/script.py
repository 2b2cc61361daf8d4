"""What is to go wrong, and when: a sequence for the prompts as they come, or lists by prompt id."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path


class Behaviour(StrEnum):
    """How the server treats one submitted prompt."""

    OK = "ok"
    """As it is."""
    HTTP_500 = "500"
    """POST /prompt answers 500 and queues nothing."""
    INVALID = "invalid"
    """POST /prompt answers 400 with `prompt_outputs_failed_validation`."""
    ERROR = "error"
    """A node raises a RuntimeError."""
    OOM = "oom"
    """A node raises torch.OutOfMemoryError."""
    DROP = "drop"
    """The submitter's WebSocket is reset in mid-run; the prompt goes on."""
    HANG = "hang"
    """It runs for ever, until it is interrupted."""
    SLOW = "slow"
    """It takes ten times the prompt seconds, at least 2 s."""


Spec = str | Mapping[str, str | Sequence[str]]


class BadScript(ValueError):
    """A script names a behaviour that there is not, or is no script at all."""


class Script:
    """Behaviours to be handed out. What is not scripted is `ok`."""

    def __init__(self, spec: Spec = "") -> None:
        self._sequence: deque[Behaviour] = deque()
        self._by_id: dict[str, deque[Behaviour]] = {}
        if isinstance(spec, str):
            self._sequence.extend(parse(spec))
        else:
            for prompt_id, words in spec.items():
                text = words if isinstance(words, str) else ",".join(words)
                self._by_id[prompt_id] = deque(parse(text))

    def take(self, prompt_id: str) -> Behaviour:
        """The behaviour for a prompt that is about to be accepted."""
        own = self._by_id.get(prompt_id)
        if own:
            return own.popleft()
        return self._sequence.popleft() if self._sequence and own is None else Behaviour.OK


def parse(text: str) -> list[Behaviour]:
    """Read `ok*3,oom,ok`.

    Raises:
        BadScript: a word is unknown, or a count is not a number.
    """
    behaviours: list[Behaviour] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        word, _, count = part.partition("*")
        try:
            behaviours += [Behaviour(word.strip())] * int(count or 1)
        except ValueError as exc:
            known = ", ".join(Behaviour)
            raise BadScript(f"script part {part!r}: use one of {known}, with *COUNT at will") from exc
    return behaviours


def read(source: str) -> Spec:
    """A script as given on the command line: the name of a file (JSON by prompt id, or text), or the words.

    Raises:
        BadScript: neither.
    """
    path = Path(source)
    text = path.read_text(encoding="utf-8") if path.is_file() else source
    spec = decode(text)
    Script(spec)
    return spec


def decode(text: str) -> Spec:
    """A script as text: a JSON object by prompt id, a JSON string, or the bare words.

    Raises:
        BadScript: it is JSON, but neither an object nor a string.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text.strip()
    if isinstance(value, dict) and set(value) == {"script"}:
        value = value["script"]
    if not isinstance(value, str | dict):
        # A lone `500` is JSON too.
        return text.strip()
    return value
