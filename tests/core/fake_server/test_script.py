"""Scripts: how they are written, and in which order they are handed out."""

from pathlib import Path

import pytest

from fake_server.comfy.behaviours import Behaviour
from fake_server.comfy.script import BadScript, Script, decode, parse, read


def test_counts_repeat_a_word() -> None:
    assert [str(acts) for acts in parse("ok*3, oom,ok")] == ["ok", "ok", "ok", "oom", "ok"]


@pytest.mark.parametrize("text", ["okay", "ok*x", "oom,,nope"])
def test_an_unknown_word_names_the_known_ones(text: str) -> None:
    with pytest.raises(BadScript, match="use one of ok, 500, 503"):
        parse(text)


def test_after_the_script_everything_is_ok() -> None:
    script = Script("oom")

    assert [str(script.take("a")), str(script.take("b"))] == ["oom", "ok"]


def test_a_script_by_id_leaves_other_prompts_alone() -> None:
    script = Script({"a": ["oom", "ok"], "b": "error*2"})

    taken = [str(script.take(prompt_id)) for prompt_id in ("a", "c", "a", "a", "b", "b", "b")]

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


def test_numbers_and_joint_faults_are_kept_apart() -> None:
    (acts, again) = parse("slow:2.5+rst-body*2")

    assert acts == again
    assert Behaviour.RST_BODY in acts
    assert Behaviour.OOM not in acts
    assert acts.number(Behaviour.SLOW, 0) == 2.5
    assert acts.number(Behaviour.RST_BODY, 7) == 7
    assert str(acts) == "slow:2.5+rst-body"


def test_a_script_may_speak_of_some_ids_and_of_the_rest() -> None:
    script = Script({"script": "oom", "by_id": {"a": ["error"]}, "now": ["deaf"]})

    assert [str(script.take(each)) for each in ("a", "b", "a", "c")] == ["error", "oom", "ok", "ok"]
