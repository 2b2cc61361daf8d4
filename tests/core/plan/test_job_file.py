"""Job files: one JSON object a line."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import CatalogueError, JobConflict
from comfyfarm.plan.job_file import read_job_file
from comfyfarm.plan.job_settings import DEADLINE_NAMES, JobSettings
from comfyfarm.run.deadlines import Deadlines

ID = "0c9c3f3a-7f10-4b8c-9b8c-5b1a6b2e6f0e"


def test_each_line_is_a_job_and_blank_lines_are_skipped() -> None:
    lines = [
        '\ufeff{"workflow":"w.json","set":{"3.seed":7,"19:3.text":"a"}}\r',
        "",
        "  \r",
        f'{{"id":"{ID}","workflow":"s3://b/w.json"}}',
        '{"id":null,"workflow":"w.json","set":null}',
    ]
    one, two, three = read_job_file("\n".join(lines).encode(), name="jobs.jsonl")

    assert (one.line, one.id, one.workflow) == (1, None, "w.json")
    assert [(str(item), item.value) for item in one.overrides] == [("19:3.text", "a"), ("3.seed", 7)]
    assert (two.line, two.id, two.overrides) == (4, ID, ())
    assert (three.line, three.id, three.overrides) == (5, None, ())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ("{}", "workflow is missing"),
        ('{"workflow":7}', "workflow is missing"),
        ('{"workflow":"w","sets":{}}', "unknown key 'sets'"),
        ('{"workflow":"w","workflow":"v"}', "occurs twice"),
        ('{"workflow":"w","set":[]}', "set is no object"),
        ('{"workflow":"w","set":{"seed":1}}', "'seed' names no input"),
        ('{"workflow":"w","set":{"3.seed":NaN}}', "no JSON number"),
        ('{"workflow":"w","id":7}', "id 7 is no lower-case"),
        (f'{{"workflow":"w","id":"{ID.upper()}"}}', "is no lower-case"),
        (f'{{"workflow":"w","id":"{ID.replace("-", "")}"}}', "is no lower-case"),
        ('{"workflow":"w","priority":"high"}', "priority 'high' is no whole number"),
        ('{"workflow":"w","priority":true}', "priority True is no whole number"),
        ('{"workflow":"w","priority":2147483648}', "priority 2147483648 is no whole number"),
        ('{"workflow":"w","deadline":"2026-08-01T18:00:00"}', "has no time zone; write 2026-"),
        ('{"workflow":"w","deadline":"tomorrow"}', "deadline 'tomorrow' is no time"),
        ('{"workflow":"w","deadline":1785600000000}', "is no Unix time in seconds"),
        ('{"workflow":"w","deadline":-1}', "is no Unix time in seconds"),
        ('{"workflow":"w","deadline":"0001-01-01T00:00:00+14:00"}', "is before 1970"),
        ('{"workflow":"w","deadline":"1969-12-31T00:00:00Z"}', "is before 1970"),
        ('{"workflow":"w","deadline":"9999-12-31T23:59:59-14:00"}', "or too far away"),
        ('{"workflow":"w","deadline":[]}', "deadline .* is no Unix time"),
        ('{"workflow":"w","tenant":7}', "tenant 7 is no name"),
        ('{"workflow":"w","tenant":"a\\n"}', "is no name"),
        ('{"workflow":"w","deadlines":[]}', "deadlines is no object"),
        ('{"workflow":"w","deadlines":{"exec_s":1}}', "unknown key 'exec_s'; the keys are submit_s"),
        ('{"workflow":"w","deadlines":{"execution_s":0}}', "execution_s 0 is no number of seconds"),
        ('{"workflow":"w","deadlines":{"cancel_s":true}}', "cancel_s True is no number"),
        (f'{{"workflow":"w","deadlines":{{"cancel_s":1{"0" * 350}}}}}', "cancel_s 1000.* is no number"),
    ],
)
def test_a_wrong_line_is_named_with_file_and_line(line: str, words: str) -> None:
    with pytest.raises(CatalogueError, match=words) as caught:
        read_job_file(f'{{"workflow":"w"}}\n\n{line}\n'.encode(), name="jobs.jsonl")
    assert str(caught.value).startswith("jobs.jsonl line 3")


def test_settings_are_read_and_null_is_as_good_as_none() -> None:
    given = {"priority": -2, "deadline": "2026-08-01T18:00:00+02:00", "tenant": "Ä & Co"}
    lines = [
        {"workflow": "w", **given, "deadlines": {"execution_s": 1200, "quiet_s": 0.5}},
        {"workflow": "w", "deadline": 1785600000.5},
        {"workflow": "w", "priority": None, "deadline": None, "tenant": None, "deadlines": None},
        {"workflow": "w"},
    ]
    one, two, three, four = read_job_file("\n".join(map(json.dumps, lines)).encode(), name="j")

    assert one.settings == {
        "priority": -2,
        "deadline": 1785600000.0,
        "tenant": "Ä & Co",
        "deadlines": {"execution_s": 1200.0, "quiet_s": 0.5},
    }
    assert two.deadline == 1785600000.5
    assert three.settings == four.settings == JobSettings().settings


def test_the_deadlines_of_a_job_are_those_of_an_attempt() -> None:
    assert set(DEADLINE_NAMES) == set(Deadlines.model_fields)


def test_all_wrong_lines_are_named_and_a_flood_is_cut() -> None:
    with pytest.raises(CatalogueError) as caught:
        read_job_file(b"{}\n" * 50, name="j")

    lines = str(caught.value).splitlines()
    assert lines[1].startswith("j line 2: ")
    assert lines[-1] == "… and 30 lines more"


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf"])
def test_a_file_without_jobs_is_refused(data: bytes) -> None:
    with pytest.raises(CatalogueError, match="j: there is no job in it"):
        read_job_file(data, name="j")


def test_one_id_on_two_lines_is_refused_with_both() -> None:
    line = f'{{"id":"{ID}","workflow":"w"}}\n'

    with pytest.raises(JobConflict, match=f"lines 1 and 3 have the same id {ID}"):
        read_job_file((line + "\n" + line).encode(), name="j")


@given(st.lists(st.tuples(st.uuids(), st.integers()), min_size=1, max_size=5, unique_by=lambda row: row[0]))
def test_written_jobs_are_read_back(rows: list[tuple[uuid.UUID, int]]) -> None:
    text = "\n".join(json.dumps({"id": str(i), "workflow": "w", "set": {"3.seed": n}}) for i, n in rows)
    found = read_job_file(text.encode(), name="j")

    assert [(job.id, job.overrides[0].value) for job in found] == [(str(i), n) for i, n in rows]


@given(st.binary(max_size=80))
def test_any_bytes_are_jobs_or_refused(data: bytes) -> None:
    try:
        found = read_job_file(data, name="j")
    except (CatalogueError, JobConflict):
        return
    assert found
