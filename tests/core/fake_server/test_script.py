"""Scripts: how they are written, and in which order they are handed out."""

from pathlib import Path

import pytest

from fake_server.comfy.script import BadScript, Behaviour, Script, decode, parse, read


def test_counts_repeat_a_word() -> None:
    assert parse("ok*3, oom,ok") == [*[Behaviour.OK] * 3, Behaviour.OOM, Behaviour.OK]


@pytest.mark.parametrize("text", ["okay", "ok*x", "oom,,nope"])
def test_an_unknown_word_names_the_known_ones(text: str) -> None:
    with pytest.raises(BadScript, match="use one of ok, 500, invalid"):
        parse(text)


def test_after_the_script_everything_is_ok() -> None:
    script = Script("oom")

    assert [script.take("a"), script.take("b")] == [Behaviour.OOM, Behaviour.OK]


def test_a_script_by_id_leaves_other_prompts_alone() -> None:
    script = Script({"a": ["oom", "ok"], "b": "error*2"})

    taken = [script.take(prompt_id) for prompt_id in ("a", "c", "a", "a", "b", "b", "b")]

    assert taken == ["oom", "ok", "ok", "ok", "error", "error", "ok"]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("oom,ok", "oom,ok"),
        ("500", "500"),
        ('"oom"', "oom"),
        ('{"script": "oom"}', "oom"),
        ('{"id": ["oom"]}', {"id": ["oom"]}),
    ],
)
def test_scripts_come_as_words_or_json(text: str, spec: object) -> None:
    assert decode(text) == spec


def test_a_script_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text('{"id": ["oom"]}')

    assert read(str(file)) == {"id": ["oom"]}
