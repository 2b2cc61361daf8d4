"""Sweeps: ranges, lists and files become the values of each job."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import CatalogueError, OverrideError
from comfyfarm.plan.job_file import read_job_file
from comfyfarm.plan.job_settings import JobSettings
from comfyfarm.plan.sweep import Axis, Way, combine, job_lines, read_axis, sweep_lines
from comfyfarm.workflow.graph import Workflow

GRAPH = Workflow.from_api(
    {
        "3": {"class_type": "KSampler", "inputs": {"seed": 1, "cfg": 7.5}},
        "19:6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}},
    },
    name="w.json",
)
FILES: dict[str, Sequence[str]] = {"numbers": ("1", "2.5", "x"), "prompts": ("7", "[cat:dog:0.5]", '"q"')}


def axis(text: str) -> Axis:
    return read_axis(text, GRAPH, lambda name: FILES[name])


def values(text: str) -> list[Any]:
    return [one.value for one in axis(text).values]


def made(*texts: str, way: Way = "product") -> list[dict[str, Any]]:
    return [{str(one): one.value for one in job} for job in combine([axis(text) for text in texts], way)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1..4", [1, 2, 3, 4]),
        ("7..7", [7]),
        ("-2..1", [-2, -1, 0, 1]),
        ("3..1", [3, 2, 1]),
        ("1..10..4", [1, 5, 9]),
        ("10..1..-5", [10, 5]),
        ("18446744073709551614..18446744073709551615", [2**64 - 2, 2**64 - 1]),
        ("[1, 2.5, \"a\", null]", [1, 2.5, "a", None]),
        ("[[1, 2]]", [[1, 2]]),
        ("@numbers", [1, 2.5, "x"]),
        ("7", [7]),
        ("a fox", ["a fox"]),
        ('"1..5"', ["1..5"]),
        ('"@numbers"', ["@numbers"]),
        ("1..", ["1.."]),
        ("1.5..3", ["1.5..3"]),
        ("@", ["@"]),
        ("[a fox", ["[a fox"]),
        ("", [""]),
    ],
)  # fmt: skip
def test_what_is_written_means_these_values(written: str, expected: list[Any]) -> None:
    assert values(f"3.seed={written}") == expected


def test_lines_of_a_file_are_text_where_the_workflow_has_text() -> None:
    assert values("19:6.text=@prompts") == ["7", "[cat:dog:0.5]", '"q"']
    assert values("3.cfg=@prompts")[:2] == [7, "[cat:dog:0.5]"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("3.seed", "has no value"),
        ("seed=1..2", "names no input"),
        ("3.seed=[]", "3.seed: the list is empty"),
        ("3.seed=1..5..0", "no such step"),
        ("3.seed=1..5..-1", "no such step leads from 1 to 5"),
        ("3.seed=0..99999999", "more than 1000000 values"),
    ],
)
def test_what_means_nothing_is_refused(written: str, words: str) -> None:
    with pytest.raises(OverrideError, match=words):
        axis(written)


def test_a_product_takes_each_with_each_the_last_one_fastest() -> None:
    assert made("3.seed=1..2", "3.cfg=5", '19:6.text=["a","b"]') == [
        {"3.seed": 1, "3.cfg": 5, "19:6.text": "a"},
        {"3.seed": 1, "3.cfg": 5, "19:6.text": "b"},
        {"3.seed": 2, "3.cfg": 5, "19:6.text": "a"},
        {"3.seed": 2, "3.cfg": 5, "19:6.text": "b"},
    ]
    assert made("3.seed=1") == [{"3.seed": 1}]


def test_zip_takes_the_first_ones_together() -> None:
    assert made("3.seed=1..2", "3.cfg=5", '19:6.text=["a","b"]', way="zip") == [
        {"3.seed": 1, "3.cfg": 5, "19:6.text": "a"},
        {"3.seed": 2, "3.cfg": 5, "19:6.text": "b"},
    ]
    assert made("3.seed=1", way="zip") == [{"3.seed": 1}]


def test_unequal_lists_are_named_with_their_lengths() -> None:
    with pytest.raises(OverrideError, match=r"3\.seed has 50, 3\.cfg has 2; --product"):
        made("3.seed=1..50", "3.cfg=[1,2]", way="zip")


@pytest.mark.parametrize("way", ["product", "zip"])
def test_one_input_twice_is_refused(way: Way) -> None:
    with pytest.raises(OverrideError, match=r"3\.seed is given twice"):
        made("3.seed=1", "3.seed=1..2", way=way)


def test_far_too_many_jobs_are_refused_with_the_sum() -> None:
    with pytest.raises(OverrideError, match="2000 x 2000 are 4000000 jobs"):
        made("3.seed=1..2000", "3.cfg=1..2000")


def test_files_of_values_are_read_as_text() -> None:
    assert sweep_lines("\ufeffä fox \r\n\n  \n b".encode(), name="p") == ("ä fox", "b")
    for data, words in ((b"\n \n", "no line"), (b"\xff", "no UTF-8"), (b"a\0", "U\\+0000")):
        with pytest.raises(CatalogueError, match=words):
            sweep_lines(data, name="p")


def test_settings_are_on_each_line_and_left_out_when_they_say_nothing() -> None:
    jobs = list(combine([axis("3.seed=1..2")], "product"))

    plain = [json.loads(line) for line in job_lines("w.json", jobs, JobSettings())]
    told = [json.loads(line) for line in job_lines("w.json", jobs, JobSettings(priority=2, tenant="t"))]

    assert plain[0] == {"workflow": "w.json", "set": {"3.seed": 1}}
    assert told[1] == {"workflow": "w.json", "set": {"3.seed": 2}, "priority": 2, "tenant": "t"}


VALUES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.integers()
    | st.booleans()
    | st.none(),
    min_size=1,
)


@given(VALUES, VALUES)
def test_every_job_file_that_is_made_is_read_back_with_its_values(left: list[Any], right: list[Any]) -> None:
    texts = [f"3.seed={json.dumps(left)}", f"19:6.text={json.dumps(right)}"]
    jobs = list(combine([axis(text) for text in texts], "product"))
    lines = "\n".join(job_lines("w.json", jobs, JobSettings()))

    read = read_job_file(lines.encode(), name="jobs.jsonl")

    found = [{str(one): one.value for one in job.overrides} for job in read]
    assert found == [{"3.seed": a, "19:6.text": b} for a in left for b in right]
