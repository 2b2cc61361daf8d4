"""From a request to a plan, before any server is asked to do something."""

import json
from importlib import resources
from typing import Any

import pytest

from comfyfarm.errors import AssetsMissing, InputError, JobConflict, OverrideError, UsageError, WorkflowError
from comfyfarm.farm.prepare import plan_jobs, prepare, prepare_for_all
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.sources import read_sources
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
    assert told[0].startswith(f"{jobs} line 1 and 2 more: {project.root / 'w.json'}: node 1, width: ")
    assert told[1].startswith(f"{jobs} line 4: {project.root / 'w.json'}: node 1, height: 'tall' is no INT")


def test_overrides_that_fit_nowhere_are_told_with_their_lines_all_at_once(
    project: Any, graph: Any, schema: NodeSchema
) -> None:
    file = project.write("w.json", graph())
    jobs = project.root / "jobs.jsonl"
    sets: list[dict[str, int]] = [{"1.color": 1}, {}, {"9.color": 1}, {"9.color": 2, "1.colour": 1}]
    jobs.write_text("\n".join(json.dumps({"workflow": "w.json", "set": one}) for one in sets))
    request = project.request(jobs)

    with pytest.raises(OverrideError) as caught:
        prepare(request, read_sources(request), schema)

    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{jobs} line 3 and 1 more: {file}: 9.color: there is no node '9'")
    assert second.startswith(f"{jobs} line 4: {file}: 1.colour: ")


def test_of_a_workflow_alone_no_line_is_named(project: Any, graph: Any, schema: NodeSchema) -> None:
    file = project.write("w.json", graph())

    for overrides in ({"9.color": 1}, {"1.width": 0}):
        request = project.request(file, overrides=overrides)
        with pytest.raises(InputError) as caught:
            prepare(request, read_sources(request), schema)
        assert str(caught.value).startswith(f"{file}: ")
        assert " line " not in str(caught.value)


def test_a_value_that_is_an_object_is_shown_as_json(project: Any, graph: Any, schema: NodeSchema) -> None:
    request = project.request(
        project.write("w.json", graph()), overrides={"1.width": {"a": [1, {"b": None}]}}
    )

    with pytest.raises(WorkflowError, match=r'\{"a": \[1, \{"b": null\}\]\} is no INT'):
        prepare(request, read_sources(request), schema)


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


# --- servers that differ -------------------------------------------------------------------------


def without(schema: NodeSchema, *classes: str, name: str) -> NodeSchema:
    """A server that has not these classes."""
    shipped = resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes()
    kept = {key: value for key, value in json.loads(shipped).items() if key not in classes}
    return NodeSchema.from_object_info(kept, name=name, live=True)


def test_a_schema_under_which_it_cannot_run_is_unfit_and_the_others_are_used(
    project: Any, graph: Any, schema: NodeSchema
) -> None:
    request = project.request(project.write("w.json", graph()))
    poor = without(schema, "EmptyImage", name="http://poor:1")

    prepared = prepare_for_all(request, read_sources(request), [poor, schema, poor])

    assert list(prepared.unfit) == [poor.sha256]
    assert "'EmptyImage' is not in http://poor:1" in prepared.unfit[poor.sha256]
    assert prepared.jobs == prepare(request, read_sources(request), schema).jobs


def test_when_it_can_run_nowhere_all_that_is_wrong_is_told(
    project: Any, graph: Any, schema: NodeSchema
) -> None:
    request = project.request(project.write("w.json", graph()))
    poor = without(schema, "EmptyImage", name="http://poor:1")
    poorer = without(schema, "EmptyImage", "SaveImage", name="http://poorer:1")

    with pytest.raises(WorkflowError) as caught:
        prepare_for_all(request, read_sources(request), [poor, poorer])

    told = str(caught.value)
    assert "on http://poor:1:\n" in told
    assert "on http://poorer:1:\n" in told
    assert "'SaveImage'" in told
    with pytest.raises(WorkflowError) as alone:
        prepare_for_all(request, read_sources(request), [poor])
    assert str(alone.value).startswith(f"{project.root / 'w.json'}: node 1")


def test_an_input_that_only_some_servers_know_can_be_set(
    project: Any, graph: Any, schema: NodeSchema
) -> None:
    """A class of one server has an input more, which the file leaves out."""
    shipped = json.loads(resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes())
    shipped["EmptyImage"]["input"]["optional"] = {"glow": ["INT", {"default": 0}]}
    newer = NodeSchema.from_object_info(shipped, name="http://newer:1", live=True)
    request = project.request(project.write("w.json", graph()), overrides={"1.glow": 3})

    prepared = prepare_for_all(request, read_sources(request), [schema, newer])

    assert list(prepared.unfit) == [schema.offers_sha256]
    assert "no input 'glow'" in prepared.unfit[schema.offers_sha256]


# --- input files ---------------------------------------------------------------------------------

LOADS = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "face.png"}},
    "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "p"}},
}


def in_folders(project: Any, *names: str) -> Any:
    """The same workflow in several folders, each with an input file of one name."""
    for name in names:
        project.write(f"{name}/w.json", LOADS)
        (project.root / name / "face.png").write_bytes(name.encode())
    jobs = project.root / "jobs.jsonl"
    jobs.write_text("".join(f'{{"workflow": "{name}/w.json"}}\n' for name in names))
    return project.request(jobs)


def test_one_workflow_in_two_folders_takes_the_input_files_of_each(project: Any, schema: NodeSchema) -> None:
    request = in_folders(project, "a", "b")

    prepared = prepare(request, read_sources(request), schema)

    (first, second) = prepared.jobs
    found = {one.key: one.file for one in prepared.assets}
    assert first.graph_digest == second.graph_digest
    assert found == {
        (first.graph_digest, "face.png"): project.root / "a" / "face.png",
        (second.id, "face.png"): project.root / "b" / "face.png",
    }


def test_the_same_file_in_two_folders_is_named_once(project: Any, schema: NodeSchema) -> None:
    request = in_folders(project, "a", "b")
    (project.root / "b" / "face.png").write_bytes(b"a")

    assert len(prepare(request, read_sources(request), schema).assets) == 1


def test_a_file_that_lies_in_one_of_two_folders_is_missing_in_the_other(
    project: Any, schema: NodeSchema
) -> None:
    request = in_folders(project, "a", "b")
    (project.root / "b" / "face.png").unlink()

    with pytest.raises(AssetsMissing, match=r"face\.png"):
        prepare(request, read_sources(request), schema)
