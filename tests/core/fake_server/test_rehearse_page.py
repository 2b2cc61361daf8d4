"""The page on rehearsals knows every word of the script language, and where it may stand."""

import re
from pathlib import Path

import pytest

from fake_server.comfy.behaviours import AT_ONCE, LASTING, NOW_ONLY, Behaviour
from fake_server.comfy.script import BadScript, read_wish

PAGE = Path(__file__).parents[3] / "docs" / "rehearse.md"


def _table() -> dict[str, str]:
    rows = re.findall(
        r"^\| (`[^|]+`) \| (both|prompt|now) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {word: where for words, where in rows for word in re.findall(r"`([^`]+)`", words)}


def test_every_word_is_in_the_table_and_nothing_else() -> None:
    assert set(_table()) == {str(word) for word in Behaviour}


@pytest.mark.parametrize("word", list(Behaviour))
def test_the_table_says_where_a_word_may_stand(word: Behaviour) -> None:
    now = word in LASTING | AT_ONCE | {Behaviour.OK}
    where = "now" if word in NOW_ONLY else "both" if now else "prompt"

    assert _table()[word] == where


@pytest.mark.parametrize(
    "spec", [{"now": ["oom"]}, {"now": 3}, "exit", {"by_id": ["oom"]}, {"script": "now"}]
)
def test_a_word_in_the_wrong_place_is_refused(spec: object) -> None:
    with pytest.raises(BadScript):
        read_wish(spec)  # type: ignore[arg-type]
