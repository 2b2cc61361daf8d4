"""Names and ids that are the same whenever the same call is made again."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyfarm.errors import JobConflict
from comfyfarm.ids import JobId, is_job_id
from comfyfarm.plan.batch import content_digest, default_batch_name, job_id, plan_batch
from comfyfarm.plan.job import JobSpec
from comfyfarm.plan.job_file import JobLine
from comfyfarm.workflow.overrides import Override, read_overrides

GRAPH, OTHER = "ab" * 32, "cd" * 32
ID = JobId("0c9c3f3a-7f10-4b8c-9b8c-5b1a6b2e6f0e")


def seed(value: Any) -> tuple[Override, ...]:
    return read_overrides({"3.seed": value})


def line(number: int, value: Any = 1, *, workflow: str = "w", job: JobId | None = None) -> JobLine:
    return JobLine(line=number, workflow=workflow, id=job, overrides=seed(value))


def plan(*lines: JobLine, out: str = "out", **more: Any) -> tuple[JobSpec, ...]:
    return plan_batch(lines, {"w": GRAPH, "v": OTHER}, stem="portrait", out=out, **more)


def test_the_same_call_makes_the_same_jobs() -> None:
    first = plan(line(1), line(2, 2))

    assert plan(line(1), line(2, 2)) == first
    assert [spec.position for spec in first] == [0, 1]
    assert all(is_job_id(spec.id) for spec in first)
    assert uuid.UUID(first[0].id).version == 5
    assert first[0].batch.startswith("portrait-")
    assert len(first[0].batch) == len("portrait-") + 8


def test_ids_are_known_beforehand() -> None:
    """Ids lie in ledgers: another way to make them would render everything again."""
    assert job_id("b", GRAPH, seed(7), 1) == "8b37f90b-7e53-5d0b-aac9-7be3bd6fe215"


@pytest.mark.parametrize(
    "other",
    [
        {"lines": (line(1, 2),)},
        {"lines": (line(1, workflow="v"),)},
        {"lines": (line(1), line(2))},
        {"lines": (line(1, job=ID),)},
        {"out": "elsewhere"},
        {"overrides": read_overrides({"1.width": 8})},
    ],
)
def test_another_call_has_another_batch_name(other: dict[str, Any]) -> None:
    lines = other.pop("lines", (line(1),))

    assert plan(*lines, **other)[0].batch != plan(line(1))[0].batch


def test_a_given_name_and_given_ids_stay() -> None:
    (spec,) = plan(line(1, job=ID), batch="mine")

    assert (spec.batch, spec.id) == ("mine", ID)


def test_a_jobs_own_value_wins_over_the_commands() -> None:
    (spec,) = plan(line(1, 5), overrides=read_overrides({"3.seed": 1, "1.width": 8}))

    assert {str(item): item.value for item in spec.overrides} == {"1.width": 8, "3.seed": 5}


def test_equal_work_has_one_content_and_ids_of_its_own() -> None:
    one, other = plan(line(1, 7), line(2, 7))

    assert one.content_digest == other.content_digest
    assert one.id != other.id
    assert content_digest(GRAPH, seed(7)) == one.content_digest
    assert content_digest(GRAPH, seed(8)) != one.content_digest
    assert content_digest(OTHER, seed(7)) != one.content_digest


def test_one_id_on_two_lines_is_refused_with_both() -> None:
    with pytest.raises(JobConflict, match="lines 1 and 4"):
        plan(line(1, job=ID), line(4, 2, job=ID))


def test_settings_travel_with_a_job_and_make_no_other_job() -> None:
    settings = {"priority": 3, "deadline": 1e9, "tenant": "t", "deadlines": {"cancel_s": 1.0}}
    (plain,) = plan(line(1))

    (told,) = plan(line(1).model_copy(update=settings))

    assert told.settings == settings
    assert (told.batch, told.id, told.content_digest) == (plain.batch, plain.id, plain.content_digest)


def test_the_parts_of_a_batch_name_do_not_run_together() -> None:
    assert default_batch_name("s", ["a", "b"], [], "") != default_batch_name("s", ["ab"], [], "")
    assert default_batch_name("s", ["a"], [], "b") != default_batch_name("s", [], ["a"], "b")


TARGETS = st.dictionaries(
    st.sampled_from(["1.a", "1.b", "2.a"]), st.integers() | st.text(max_size=3), min_size=1
)


@given(TARGETS, st.randoms(use_true_random=False))
def test_the_order_of_overrides_does_not_matter(values: dict[str, Any], rng: Any) -> None:
    overrides = list(read_overrides(values))
    shuffled = overrides[:]
    rng.shuffle(shuffled)

    assert job_id("b", GRAPH, shuffled, 1) == job_id("b", GRAPH, overrides, 1)
    assert content_digest(GRAPH, shuffled) == content_digest(GRAPH, overrides)
