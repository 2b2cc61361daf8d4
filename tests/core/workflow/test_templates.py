"""Real templates, as the editor converts them: each row is the template's, and passes."""

import json
from importlib.resources import files
from typing import Any

import pytest

from comfyfarm.workflow.prefix import expected_outputs, with_output_prefix
from comfyfarm.workflow.preflight import preflight
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.references.find import find_references
from comfyfarm.workflow.schema import NodeSchema

TEMPLATES = [
    "image_sdxl_simple.json",
    "audio_ace_step_1_m2m_editing.json",
    "3d_hunyuan3d-v2.1.json",
    "utility-gan_upscaler.json",
    "flux_fill_inpaint_example.json",
    "image_qwen_image_controlnet_patch.json",
]
MUTED, BYPASSED = 2, 4
NOT_IN_THE_API = {"Note", "MarkdownNote", "Reroute", "PrimitiveNode"}


def ui_file(template: str) -> dict[str, Any]:
    path = files("comfyui_workflow_templates_json") / "templates" / template
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def flatten(nodes: list[Any], definitions: dict[str, Any], path: str = "") -> dict[str, str]:
    """Id path and class of every node that runs, those inside subgraphs included."""
    found: dict[str, str] = {}
    for node in nodes:
        place = f"{path}{node['id']}"
        if node.get("mode", 0) in {MUTED, BYPASSED} or node["type"] in NOT_IN_THE_API:
            continue
        if node["type"] in definitions:
            found |= flatten(definitions[node["type"]]["nodes"], definitions, f"{place}:")
        else:
            found[place] = node["type"]
    return found


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_row_is_what_the_template_of_its_name_holds(
    gold: dict[str, dict[str, Any]], template: str
) -> None:
    raw = ui_file(template)
    subgraphs = {item["id"]: item for item in raw.get("definitions", {}).get("subgraphs", [])}

    assert {key: node["class_type"] for key, node in gold[template].items()} == flatten(
        raw["nodes"], subgraphs
    )


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_model_that_the_template_lists_is_found(
    gold: dict[str, dict[str, Any]], schema: NodeSchema, template: str
) -> None:
    listed = {
        (model["directory"], model["name"])
        for node in _all_nodes(ui_file(template))
        if node.get("mode", 0) not in {MUTED, BYPASSED}
        for model in node.get("properties", {}).get("models", [])
    }
    found = find_references(read_workflow(json.dumps(gold[template]).encode(), name=template), schema)

    assert {(reference.folder, reference.path) for reference in found.references} == listed
    assert listed
    assert found.unclassified == ()


def _all_nodes(raw: dict[str, Any]) -> list[Any]:
    inner = [node for item in raw.get("definitions", {}).get("subgraphs", []) for node in item["nodes"]]
    return [*raw["nodes"], *inner]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_row_passes_preflight(gold: dict[str, dict[str, Any]], schema: NodeSchema, template: str) -> None:
    found = preflight(json.dumps(gold[template]).encode(), name=template, schema=schema)

    assert [f for f in found.findings if f.severity == "error"] == []


def test_the_kinds_that_the_road_needs_are_among_them(
    gold: dict[str, dict[str, Any]], schema: NodeSchema
) -> None:
    reports = [preflight(json.dumps(g).encode(), name=n, schema=schema) for n, g in gold.items()]
    workflows = [read_workflow(json.dumps(graph).encode(), name=name) for name, graph in gold.items()]
    savers = {w.node(node).class_type for w in workflows for node in expected_outputs(w, schema)}

    assert list(gold) == TEMPLATES
    assert savers == {"SaveImage", "SaveAudioAdvanced", "SaveGLB", "SaveVideo"}
    assert sum(bool(report.assets) for report in reports) == 5
    for workflow in workflows:
        prefixed = with_output_prefix(workflow, schema, "j")
        for node in expected_outputs(workflow, schema):
            assert str(prefixed.node(node).inputs["filename_prefix"]).startswith("j/")
