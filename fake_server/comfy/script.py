"""What is to go wrong, and when: a sequence for the prompts as they come, lists by prompt id, or now.

`ok*3,oom,slow:5+rst-body`: words with an optional number after a colon, several for one prompt joined
by `+`, repeated by `*`. `docs/rehearse.md` has all words.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from fake_server.comfy.behaviours import AT_ONCE, LASTING, NOW_ONLY, Acts, Behaviour

Words = str | Sequence[str]
Spec = str | Mapping[str, Any]
_KEYS = frozenset({"script", "by_id", "now"})
_NOTHING = Acts(words=((Behaviour.OK, None),))


class BadScript(ValueError):
    """A script names a behaviour that there is not, or is no script at all."""


class Script:
    """Behaviours to be handed out. What is not scripted is `ok`."""

    def __init__(self, spec: Spec = "") -> None:
        wish = read_wish(spec)
        self._sequence = deque(wish.sequence or ())
        self._by_id = {prompt_id: deque(acts) for prompt_id, acts in (wish.by_id or {}).items()}

    def take(self, prompt_id: str) -> Acts:
        """The behaviours for a prompt that is about to be accepted."""
        own = self._by_id.get(prompt_id)
        if own:
            return own.popleft()
        return self._sequence.popleft() if self._sequence and own is None else _NOTHING


class Wish(BaseModel):
    """A script taken apart; None is for what it does not speak of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sequence: tuple[Acts, ...] | None = None
    by_id: dict[str, tuple[Acts, ...]] | None = None
    now: tuple[Acts, ...] = ()

    @property
    def replaces(self) -> bool:
        """Whether a script for prompts is given, so that an earlier one ends."""
        return self.sequence is not None or self.by_id is not None


def read_wish(spec: Spec) -> Wish:
    """Take a script apart: words, an object by prompt id, or one of `script`, `by_id` and `now`.

    Raises:
        BadScript: it names an unknown behaviour, or one where it makes no sense.
    """
    if isinstance(spec, str):
        return Wish(sequence=_for_prompts(spec))
    if not spec or not set(spec) <= _KEYS:
        return Wish(by_id=_by_id(spec))
    script = spec.get("script")
    nested = isinstance(script, Mapping)
    by_id = script if nested else spec.get("by_id")
    return Wish(
        sequence=None if script is None or nested else _for_prompts(script),
        by_id=None if by_id is None else _by_id(by_id),
        now=_for_now(spec.get("now", "")),
    )


def parse(words: object) -> tuple[Acts, ...]:
    """Read `ok*3,oom,slow:5+rst-body`, or a list of such parts.

    Raises:
        BadScript: a word is unknown, or a count or a number is none.
    """
    if isinstance(words, list | tuple):
        words = ",".join(str(each) for each in words)
    if not isinstance(words, str):
        raise BadScript(f"a script is words or a list of words, not {words!r}")
    acts: list[Acts] = []
    for part in filter(None, (part.strip() for part in words.split(","))):
        each, _, count = part.partition("*")
        try:
            acts += [Acts(words=tuple(_word(word) for word in each.split("+")))] * int(count or 1)
        except ValueError as exc:
            known = ", ".join(Behaviour)
            text = f"script part {part!r}: use one of {known}, with :NUMBER, +ANOTHER and *COUNT at will"
            raise BadScript(text) from exc
    return tuple(acts)


def _word(text: str) -> tuple[Behaviour, float | None]:
    word, colon, number = text.strip().partition(":")
    return Behaviour(word), float(number) if colon else None


def _for_prompts(words: object) -> tuple[Acts, ...]:
    acts = parse(words)
    for each in acts:
        if (word := each.any_of(NOW_ONLY)) is not None:
            raise BadScript(f"{word!r} is about no single prompt: send it as `now`")
    return acts


def _for_now(words: object) -> tuple[Acts, ...]:
    acts = parse(words)
    for each in acts:
        for word, _ in each.words:
            if word not in LASTING | AT_ONCE | {Behaviour.OK}:
                raise BadScript(f"{word!r} is about a prompt: it cannot be done now")
    return acts


def _by_id(lists: object) -> dict[str, tuple[Acts, ...]]:
    if not isinstance(lists, Mapping):
        raise BadScript(f"`by_id` is an object by prompt id, not {lists!r}")
    return {str(prompt_id): _for_prompts(words) for prompt_id, words in lists.items()}


def read(source: str) -> Spec:
    """A script as given on the command line: the name of a file (JSON or words), or the words.

    Raises:
        BadScript: neither.
    """
    path = Path(source)
    text = path.read_text(encoding="utf-8") if path.is_file() else source
    spec = decode(text)
    read_wish(spec)
    return spec


def decode(text: str) -> Spec:
    """A script as text: a JSON object, a JSON string, or the bare words."""
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
