"""From a request to a plan, before any server is asked to do something."""

import json
from typing import Any

import pytest

from comfyfarm.errors import InputError, JobConflict, UsageError, WorkflowError
from comfyfarm.farm.prepare import plan_jobs, prepare, read_sources
from comfyfarm.farm.request import RenderRequest
from comfyfarm.workflow.schema import NodeSchema


@pytest.fixture(scope="module")
def schema() -> NodeSchema:
    return NodeSchema.shipped()


def test_the_same_call_names_the_same_jobs(project: Any) -> None:
    request = project.request(project.jobs(3))
    first, second = (plan_jobs(request, read_sources(request)) for _ in range(2))

    assert first.jobs == second.jobs
    assert first.batch == second.batch
    assert first.batch.startswith("jobs-")
    elsewhere = request.model_copy(update={"out": "/elsewhere"})
    assert plan_jobs(elsewhere, read_sources(elsewhere)).batch != first.batch


def test_a_graph_can_be_handed_over_itself(project: Any, graph: Any, schema: NodeSchema) -> None:
    file = project.write("w.json", graph())
    by_name = project.request(file, batch="b")
    itself = by_name.model_copy(update={"workflow": graph()})

    assert [one.id for one in prepare(itself, read_sources(itself), schema).jobs] == [
        one.id for one in prepare(by_name, read_sources(by_name), schema).jobs
    ]


@pytest.mark.parametrize("both", [True, False])
def test_one_workflow_or_one_job_file(project: Any, *, both: bool) -> None:
    name = "w.json" if both else None
    request = project.request(project.jobs(1)).model_copy(update={"workflow": name, "job_file": name})

    with pytest.raises(UsageError, match="one workflow or one job file"):
        read_sources(request)


def test_a_workflow_that_is_not_there_is_named(project: Any) -> None:
    jobs = project.root / "jobs.jsonl"
    jobs.write_text('{"workflow": "gone.json"}\n')

    with pytest.raises(InputError, match=r"gone\.json: there is no such file"):
        read_sources(project.request(jobs))


def test_the_lock_beside_the_workflow_is_taken_unless_another_is_named(project: Any, graph: Any) -> None:
    file = project.write("w.json", graph())
    request: RenderRequest = project.request(file)
    assert read_sources(request).lock is None

    beside = project.write("comfyfarm.lock", {"version": 1, "models": []})
    assert read_sources(request).lock == beside.read_bytes()
    inline = request.model_copy(update={"lock": {"version": 1, "models": []}})
    assert json.loads(read_sources(inline).lock or b"") == {"version": 1, "models": []}
    with pytest.raises(InputError, match=r"other\.lock"):
        read_sources(request.model_copy(update={"lock": str(project.root / "other.lock")}))


def test_a_job_of_its_own_wins_over_what_is_set_for_all(project: Any, graph: Any) -> None:
    project.write("w.json", graph())
    jobs = project.root / "jobs.jsonl"
    jobs.write_text('{"workflow": "w.json"}\n{"workflow": "w.json", "set": {"1.color": 7}}\n')
    request = project.request(jobs, overrides={"1.color": 5, "1.width": 32})
    planned = plan_jobs(request, read_sources(request))

    assert [{str(one): one.value for one in job.overrides} for job in planned.jobs] == [
        {"1.color": 5, "1.width": 32},
        {"1.color": 7, "1.width": 32},
    ]


def test_every_fault_of_every_job_is_told_at_once_and_once(
    project: Any, graph: Any, schema: NodeSchema
) -> None:
    project.write("w.json", graph())
    jobs = project.root / "jobs.jsonl"
    lines = [{"workflow": "w.json", "set": {"1.width": 0, "1.color": n}} for n in range(3)]
    lines.append({"workflow": "w.json", "set": {"1.height": "tall"}})
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    request = project.request(jobs)

    with pytest.raises(WorkflowError) as caught:
        prepare(request, read_sources(request), schema)

    told = str(caught.value).splitlines()
    assert len(told) == 2
    assert "w.json: node 1, width: " in told[0]
    assert "w.json: node 1, height: 'tall' is no INT" in told[1]


def test_one_id_twice_is_refused(project: Any, ids: list[str]) -> None:
    jobs = project.jobs(2, ids=[ids[0], ids[0]])
    request = project.request(jobs)

    with pytest.raises(JobConflict, match=ids[0]):
        plan_jobs(request, read_sources(request))


def test_the_digest_of_the_sources_follows_every_byte(project: Any) -> None:
    request = project.request(project.jobs(1))
    before = read_sources(request).digest()
    assert read_sources(request).digest() == before

    file = project.root / "w.json"
    file.write_text(file.read_text() + " ")

    assert read_sources(request).digest() != before
