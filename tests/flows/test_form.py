"""The parameter form, by the requests that it makes: schema, validation, start."""

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.flows.conftest import Deployed

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(180)]

FORM = {
    "workflow": "/srv/portrait.json",
    "job_file": "",
    "overrides": {"3.seed": 7},
    "lock": "",
    "out": "output-store/default",
    "servers": [],
}


def test_every_field_of_the_form_has_a_place_a_description_and_a_plain_input(deployed: "Deployed") -> None:
    schema = deployed.deployment()["parameter_openapi_schema"]
    fields = schema["properties"]

    ordered = sorted(fields, key=lambda name: fields[name]["position"])
    assert ordered[:5] == ["workflow", "job_file", "overrides", "lock", "out"]
    assert all(field["description"].endswith(".") for field in fields.values())
    # A union with null would open on a tab `None`, with the input hidden.
    assert "null" not in str(fields)
    tabs = [choice["title"] for choice in fields["workflow"]["anyOf"]]
    assert tabs == ["Address", "JSON"]
    assert not schema.get("required")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({}, None),
        ({"workflow": {"1": {"class_type": "EmptyImage", "inputs": {}}}}, None),
        ({"overrides": [1]}, "overrides"),
        ({"workflow": 7}, "workflow"),
        ({"servers": "http://one"}, "servers"),
        ({"out": None}, "out"),
    ],
)
def test_the_form_is_checked_before_it_is_sent(
    deployed: "Deployed", changed: dict[str, Any], field: str | None
) -> None:
    schema = deployed.deployment()["parameter_openapi_schema"]

    answer = deployed.post("/ui/schemas/validate", {"schema": schema, "values": {**FORM, **changed}})

    assert answer.status_code == 200
    assert answer.json()["valid"] is (field is None)
    assert [error["property"] for error in answer.json()["errors"]] == ([field] if field else [])


@pytest.mark.parametrize(("field", "value"), [("overrides", [1]), ("workflow", 7), ("servers", "http://one")])
def test_bad_values_are_refused_with_409_that_names_the_field(
    deployed: "Deployed", field: str, value: Any
) -> None:
    answer = deployed.start(**{**FORM, field: value})

    assert answer.status_code == 409
    assert field in answer.json()["detail"]


@pytest.mark.parametrize("name", ["render", "nightly"])
def test_a_misspelt_parameter_is_refused_with_409_that_names_it_and_nothing_is_created(
    deployed: "Deployed", name: str
) -> None:
    target = deployed.deployment(name)["id"]
    asked = {"deployments": {"id": {"any_": [target]}}}
    before = deployed.post("/flow_runs/count", asked).json()

    answer = deployed.post(
        f"/deployments/{target}/create_flow_run", {"parameters": {"workflw": "/srv/portrait.json"}}
    )

    assert answer.status_code == 409
    assert "'workflw' was unexpected" in answer.json()["detail"]
    assert deployed.post("/flow_runs/count", asked).json() == before


def test_prefects_own_command_names_a_misspelt_parameter(deployed: "Deployed", prefect_program: str) -> None:
    command = ["deployment", "run", "render-batch/render", "--param", 'workflw="/srv/portrait.json"']
    asked = {"deployments": {"id": {"any_": [deployed.deployment()["id"]]}}}
    before = deployed.post("/flow_runs/count", asked).json()

    done = subprocess.run([prefect_program, *command], capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert "workflw" in done.stdout + done.stderr
    assert deployed.post("/flow_runs/count", asked).json() == before


def test_the_forms_values_start_a_run_in_the_hosts_queue(deployed: "Deployed") -> None:
    body = {"parameters": FORM, "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": LATER}}}

    answer = deployed.post(f"/deployments/{deployed.deployment()['id']}/create_flow_run", body)

    assert answer.status_code == 201
    run = answer.json()
    assert run["work_queue_name"] == "normal"
    assert run["tags"] == ["comfyfarm"]
    # What the form left out comes from the deployment.
    assert run["parameters"] == {**FORM, "host": "test-host", "ledger": "default", "mirror": ""}


LATER = "2099-01-01T00:00:00Z"
