"""Overrides: `node.input=value`."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import OverrideError
from comfyfarm.ids import NodeId
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.overrides import (
    Override,
    apply_overrides,
    merge_overrides,
    parse_override,
    read_overrides,
)
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


def put(target: str, value: Any) -> Override:
    return read_overrides({target: value})[0]


@pytest.mark.parametrize(
    ("text", "node", "name", "value"),
    [
        ("3.seed=7", "3", "seed", 7),
        ("19:3.seed=18446744073709551615", "19:3", "seed", 18446744073709551615),
        ("6.text=a cat, 4k", "6", "text", "a cat, 4k"),
        ('6.text="7"', "6", "text", "7"),
        ("6.text=", "6", "text", ""),
        ("6.text=a=b", "6", "text", "a=b"),
        ("1.resize.width=5", "1", "resize.width", 5),
        ("3.cfg=7.5", "3", "cfg", 7.5),
        ("3.on=true", "3", "on", True),
        ("3.image=null", "3", "image", None),
        ('3.image=["1", 0]', "3", "image", ["1", 0]),
        ("6.text=NaN", "6", "text", "NaN"),
        ("6.text=1e999", "6", "text", "1e999"),
        ("6.text={red|blue}", "6", "text", "{red|blue}"),
    ],
)
def test_the_first_dot_splits_and_the_value_is_json_or_text(
    text: str, node: str, name: str, value: Any
) -> None:
    assert parse_override(text) == Override(node=NodeId(node), input=name, value=value)


@pytest.mark.parametrize(
    "text", ["3.seed", "seed=7", ".seed=7", "3.=7", "", '3.x={"a":1,"a":2}', "3.x=\udcff"]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(OverrideError):
        parse_override(text)


def test_values_are_put_in_and_the_first_workflow_stays(good: dict[str, Any], make: Make) -> None:
    before = make(good)
    after = apply_overrides(before, [put("1.width", 128), put("2.filename_prefix", "x")])

    assert after.node("1").inputs["width"] == 128
    assert after.node("2").inputs == {"images": Link(NodeId("1"), 0), "filename_prefix": "x"}
    assert before.to_api() == good


def test_a_link_may_become_a_value_and_a_value_a_link(good: dict[str, Any], make: Make) -> None:
    after = apply_overrides(make(good), [put("2.images", "none"), put("1.color", ["2", 0])])

    assert after.node("2").inputs["images"] == "none"
    assert after.node("1").inputs["color"] == Link(NodeId("2"), 0)


def test_everything_that_does_not_exist_is_named_at_once_with_near_matches(
    good: dict[str, Any], make: Make
) -> None:
    with pytest.raises(OverrideError) as caught:
        apply_overrides(make(good), [put("1.widht", 1), put("9.seed", 2), put("Black.width", 3)])

    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        "w.json: 1.widht: node 1 (EmptyImage) has no input 'widht'; did you mean width"
    )
    assert "there is no node '9'" in lines[1]
    assert lines[2] == "w.json: Black.width: there is no node 'Black'; 'Black' is node 1"
    assert len(lines) == 3


def test_only_a_list_of_all_there_is_says_so(good: dict[str, Any], make: Make) -> None:
    def told(target: str) -> str:
        with pytest.raises(OverrideError) as caught:
            apply_overrides(make(good), [put(target, 1)])
        return str(caught.value)

    assert told("1.heigth").endswith("has no input 'heigth'; did you mean height?")
    assert told("2.zzz").endswith("has no input 'zzz'; it has images, filename_prefix")


def test_an_input_that_the_file_leaves_out_needs_the_schema(
    good: dict[str, Any], make: Make, schema: NodeSchema
) -> None:
    del good["2"]["inputs"]["filename_prefix"]
    wanted = [put("2.filename_prefix", "x")]

    assert apply_overrides(make(good), wanted, schema=schema).node("2").inputs["filename_prefix"] == "x"
    with pytest.raises(OverrideError):
        apply_overrides(make(good), wanted)


def test_a_jobs_own_value_wins_and_the_result_is_sorted() -> None:
    given_ = [
        parse_override("3.seed=1"),
        parse_override("1.b=2"),
        parse_override("1.a=0"),
        parse_override("1.a=3"),
    ]
    merged = merge_overrides(given_, read_overrides({"3.seed": 9}))

    assert [(str(item), item.value) for item in merged] == [("1.a", 3), ("1.b", 2), ("3.seed", 9)]


def test_no_override_changes_nothing(good: dict[str, Any], make: Make) -> None:
    workflow = make(good)

    assert apply_overrides(workflow, []) is workflow


IDS = st.text(alphabet="0123456789:_ab", min_size=1, max_size=6)
NAMES = st.text(alphabet="abc._", min_size=1, max_size=6)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))  # neither is taken
)


@given(IDS, NAMES, VALUES)
def test_what_is_written_as_json_is_read_back(node: str, name: str, value: Any) -> None:
    found = parse_override(f"{node}.{name}={json.dumps(value)}")

    assert (found.node, found.input, found.value) == (node, name, value)


@given(st.text(max_size=40))
def test_any_text_is_an_override_or_refused(text: str) -> None:
    try:
        found = parse_override(text)
    except OverrideError:
        return
    assert text.startswith(f"{found.node}.{found.input}=")


@given(
    st.dictionaries(st.tuples(IDS, NAMES), VALUES, max_size=5), st.dictionaries(st.tuples(IDS, NAMES), VALUES)
)
def test_merging_keeps_every_target_once(
    one: dict[tuple[str, str], Any], own: dict[tuple[str, str], Any]
) -> None:
    def items(values: dict[tuple[str, str], Any]) -> list[Override]:
        return [Override(node=NodeId(node), input=name, value=v) for (node, name), v in values.items()]

    merged = merge_overrides(items(one), items(own))

    assert {(item.node, item.input): item.value for item in merged} == {**one, **own}
    assert [(item.node, item.input) for item in merged] == sorted({**one, **own})
