"""What findings advise: words that fit the server, the file and the number."""

import json
from typing import Any

import pytest

from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.reports.markdown import to_markdown
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui import notes


def found(graph: dict[str, Any], schema: NodeSchema, code: str) -> Finding:
    (one,) = (
        f for f in check(Workflow.from_api(graph, name="w"), schema, check_files=True) if f.code == code
    )
    return one


@pytest.mark.parametrize(
    ("outputs", "words"),
    [([], "has no output"), (["A"], "has output 0 only"), (["A", "B", "C"], "has outputs 0 to 2")],
)
def test_a_slot_that_is_not_there_says_which_are(outputs: list[str], words: str) -> None:
    made = {
        "X": {"input": {}, "output": outputs},
        "Y": {"input": {"required": {"a": ["A", {}]}}, "output": [], "output_node": True},
    }
    schema = NodeSchema.from_object_info(made, name="saved.json")
    graph = {"4": {"class_type": "X", "inputs": {}}, "5": {"class_type": "Y", "inputs": {"a": ["4", 3]}}}

    message = found(graph, schema, "slot_out_of_range").message
    assert message == f"takes output 3 of node 4 (X), which {words}"


def test_a_model_that_a_server_lacks_can_be_put_there() -> None:
    made = {
        "UNETLoader": {
            "input": {"required": {"unet_name": [["one.safetensors"], {}]}},
            "output": [],
            "output_node": True,
        },
        "Other": {"input": {"required": {"way": [["a"], {}]}}, "output": [], "output_node": True},
    }
    server = NodeSchema.from_object_info(made, name="http://h", live=True)
    model = {"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "zzz.gguf"}}}
    way = {"1": {"class_type": "Other", "inputs": {"way": "b"}}}

    told = found(model, server, "not_in_list")
    assert told.message == "'zzz.gguf' is not the one value that http://h offers"
    assert told.remedy == (
        "put the file into the models folder diffusion_models of that server, or choose 'one.safetensors'"
    )
    assert found(way, server, "not_in_list").remedy == "choose 'a'"


def test_a_class_that_nobody_knows_may_be_of_a_newer_comfyui(schema: NodeSchema) -> None:
    graph = {"1": {"class_type": "NobodyKnows", "inputs": {}}}
    live = NodeSchema.from_object_info(
        {"Y": {"input": {}, "output": [], "output_node": True}}, name="http://h", live=True
    )

    assert "or a newer ComfyUI has it" in found(graph, schema, "unknown_class").remedy
    assert "newer" not in found(graph, live, "unknown_class").remedy


def test_values_under_wrong_names_are_one_story(schema: NodeSchema) -> None:
    def node(number: int, *values: object) -> dict[str, Any]:
        return {"id": number, "type": "EmptyLatentImage", "mode": 0, "widgets_values": list(values)}

    tree = {"nodes": [node(1, "wide", 64, 1)], "links": [], "version": 0.4}
    report = preflight(json.dumps(tree).encode(), name="w.json", schema=schema)
    by_code = {f.code: f for f in report.findings}

    assert {"misplaced_values"} <= by_code.keys()
    told = [f for f in report.findings if f.field == "width" and "INT" in f.message]
    assert told
    assert all(f.remedy.startswith("the file's values seem shifted: see misplaced_values") for f in told)


def test_promoted_values_name_the_command_that_chooses() -> None:
    remedy = notes.host_vs_inner("1", "seed", host=1, inner=2).remedy

    assert remedy.endswith("comfyfarm convert --editor 1.45|1.58 writes the graph with one of them")


def test_one_is_no_plural(schema: NodeSchema) -> None:
    graph = {"1": {"class_type": "NobodyKnows", "inputs": {}}, **{f"_{n}": n for n in range(21)}}
    report = preflight(json.dumps(graph).encode(), name="w.json", schema=schema)

    assert "1 more key is no node" in {f.message for f in report.findings}
    assert "api format, 1 error, 23 warnings, 0 models" in to_markdown([report])
    assert notes.dangling_rows(1, "").message.startswith("1 row of the link table names nodes")
    assert notes.dangling_rows(2, "").message.startswith("2 rows of the link table name nodes")
