"""SARIF: what code hosts need of it, and that files and nodes keep their names."""

import json
from typing import Any

import pytest

from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.reports.sarif import to_sarif
from comfyfarm.workflow.schema import NodeSchema


def run_of(schema: NodeSchema, *files: tuple[str, Any]) -> dict[str, Any]:
    reports = [preflight(json.dumps(graph).encode(), name=name, schema=schema) for name, graph in files]
    log = json.loads(json.dumps(to_sarif(reports)))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    run: dict[str, Any] = log["runs"][0]
    return run


def test_each_finding_is_a_result_of_a_rule(schema: NodeSchema, good: dict[str, Any]) -> None:
    bad = {**good, "1": {"class_type": "EmptyImage", "inputs": {**good["1"]["inputs"], "width": 0}}}
    run = run_of(schema, ("flows/good.json", good), ("flows/bad one.json", bad))
    rules = run["tool"]["driver"]["rules"]
    (result,) = [one for one in run["results"] if one["level"] == "error"]

    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "below_min"
    assert "→" not in result["message"]["text"]
    assert "To mend it: " in result["message"]["text"]
    (place,) = result["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "flows/bad%20one.json"
    assert place["logicalLocations"] == [
        {"name": "EmptyImage", "fullyQualifiedName": "1.width", "kind": "element"}
    ]


def test_levels_are_those_of_sarif(schema: NodeSchema, good: dict[str, Any]) -> None:
    graph = {**good, "_note": 1, "1": {**good["1"], "inputs": {**good["1"]["inputs"], "width": "0"}}}

    found = {one["ruleId"]: one["level"] for one in run_of(schema, ("w.json", graph))["results"]}

    assert found == {"stray_key": "warning", "coerced": "note", "below_min": "error"}


def test_a_file_without_findings_gives_an_empty_list(schema: NodeSchema, good: dict[str, Any]) -> None:
    run = run_of(schema, ("w.json", good))

    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a/b#1.json", "a/b%231.json"),
        ("/srv/x y.json", "file:///srv/x%20y.json"),
        ("C:\\w\\x.json", "file:///C:/w/x.json"),
        ("https://h/w.json", "https://h/w.json"),
        ("odd:name.json", "odd%3Aname.json"),
    ],
)
def test_paths_become_addresses(schema: NodeSchema, file: str, uri: str) -> None:
    (result,) = run_of(schema, (file, []))["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri
