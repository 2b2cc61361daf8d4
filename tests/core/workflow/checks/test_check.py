"""Preflight: what ComfyUI refuses is an error, what it changes in silence a warning, the rest nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.checks.link_types import fits
from comfyfarm.workflow.findings import Finding
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.overrides import apply_overrides, read_overrides
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.schema import NodeSchema

Make = Callable[[dict[str, Any]], Workflow]


def judged(graph: Any, schema: NodeSchema, **more: Any) -> tuple[Finding, ...]:
    return check(Workflow.from_api(graph, name="w.json"), schema, check_files=schema.live, **more)


def codes(graph: Any, schema: NodeSchema, **more: Any) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in judged(graph, schema, **more)]


def sampler(**inputs: Any) -> dict[str, Any]:
    """A whole graph around one KSampler."""
    values = {
        "seed": 1,
        "steps": 20,
        "cfg": 8.0,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1,
    }
    links = {"model": ["4", 0], "positive": ["5", 0], "negative": ["5", 0], "latent_image": ["6", 0]}
    return {
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}},
        "5": {"class_type": "CLIPTextEncode", "inputs": {"text": "a", "clip": ["4", 1]}},
        "6": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "3": {"class_type": "KSampler", "inputs": {**values, **links, **inputs}},
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": {"class_type": "SaveImage", "inputs": {"images": ["8", 0], "filename_prefix": "x"}},
    }


def test_a_good_graph_has_no_findings(good: dict[str, Any], schema: NodeSchema) -> None:
    assert codes(good, schema) == []
    assert codes(sampler(), schema) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"seed": 2**64}, ("above_max", "error")),
        ({"seed": -1}, ("below_min", "error")),
        ({"seed": 2**53 + 1}, ("js_precision", "warning")),
        ({"seed": 1e19}, ("coerced", "warning")),
        ({"seed": "7"}, ("coerced", "info")),
        ({"steps": 64.9}, ("coerced", "warning")),
        ({"steps": True}, ("coerced", "warning")),
        ({"steps": "64px"}, ("wrong_type", "error")),
        ({"steps": None}, ("wrong_type", "error")),
        ({"steps": {"a": 1}}, ("wrong_type", "error")),
        ({"sampler_name": "EULER"}, ("not_in_list", "error")),
        ({"sampler_name": ["5", 0]}, ("type_mismatch", "error")),
        ({"latent_image": ["4", 0]}, ("type_mismatch", "error")),
        ({"latent_image": ["77", 0]}, ("dangling_link", "error")),
    ],
)
def test_a_value_is_judged_as_the_server_judges_it(
    schema: NodeSchema, values: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = judged(sampler(**values), schema)

    assert (found[0].code, found[0].severity) == expected
    assert [(f.node, f.field) for f in found if f.severity == "error"] in ([], [("3", next(iter(values)))])


@pytest.mark.parametrize(
    "values",
    [{"steps": 20.0}, {"seed": 2**53}, {"cfg": 7}, {"steps": {"__value__": 20}}],
)
def test_what_the_server_takes_as_it_is_has_no_finding(schema: NodeSchema, values: dict[str, Any]) -> None:
    assert codes(sampler(**values), schema) == []


def test_near_values_are_in_the_remedy(schema: NodeSchema) -> None:
    (found,) = judged(sampler(sampler_name="Euler_Ancestrl"), schema)

    assert "'euler_ancestral'" in found.remedy
    assert "w.json" not in found.message


def test_a_missing_required_input_is_an_error_and_an_optional_one_is_not(schema: NodeSchema) -> None:
    graph = sampler()
    del graph["3"]["inputs"]["cfg"]
    graph["4"] = {
        "class_type": "DualCLIPLoader",
        "inputs": {"clip_name1": "a", "clip_name2": "b", "type": "sdxl"},
    }

    assert ("missing_input", "error") in codes(graph, schema)
    assert [f.field for f in judged(graph, schema) if f.code == "missing_input"] == ["cfg"]


def test_models_and_uploads_are_not_checked_against_a_snapshot(schema: NodeSchema) -> None:
    graph = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "nope.png"}},
        "2": {"class_type": "VAELoader", "inputs": {"vae_name": "nope.safetensors"}},
        "3": {"class_type": "VAEEncode", "inputs": {"pixels": ["1", 0], "vae": ["2", 0]}},
        "4": {"class_type": "SaveLatent", "inputs": {"samples": ["3", 0], "filename_prefix": "x"}},
    }

    assert codes(graph, schema) == []


def test_a_running_servers_list_of_models_is_checked(schema: NodeSchema) -> None:
    answer = {
        "UpscaleModelLoader": {
            "input": {"required": {"model_name": [["RealESRGAN_x4plus.pth"], {}]}},
            "output": ["UPSCALE_MODEL"],
            "output_node": True,
        }
    }
    graph = {"1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "realesrgan_x4plus.pth"}}}
    live = NodeSchema.from_object_info(answer, name="http://h", live=True)
    saved = NodeSchema.from_object_info(answer, name="saved.json")

    (found,) = judged(graph, live)
    assert (found.code, found.remedy) == ("not_in_list", "choose 'RealESRGAN_x4plus.pth'")
    assert codes(graph, saved) == []
    assert check(read_workflow(json.dumps(graph).encode(), name="w"), live) == ()


def test_unknown_classes_are_errors_even_where_nothing_needs_them(
    good: dict[str, Any], schema: NodeSchema
) -> None:
    good["7"] = {"class_type": "Nobody Knows", "inputs": {}}
    (found,) = judged(good, schema)

    assert (found.code, found.severity, found.node) == ("unknown_class", "error", "7")
    assert "Nobody Knows" in found.message


def test_a_graph_without_output_is_an_error(good: dict[str, Any], schema: NodeSchema) -> None:
    del good["2"]

    assert codes(good, schema) == [("no_outputs", "error")]


def test_dead_branches_are_only_warned_of(good: dict[str, Any], schema: NodeSchema) -> None:
    good["7"] = {"class_type": "EmptyImage", "inputs": {"width": "x"}}

    assert set(codes(good, schema)) == {("dead_node", "warning")}


def test_a_name_over_a_link_is_told(schema: NodeSchema, good: dict[str, Any]) -> None:
    good["3"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": ["1", 0]}}
    good["4"] = {"class_type": "ModelSave", "inputs": {"model": ["3", 0], "filename_prefix": "x"}}
    del good["2"]

    assert codes(good, schema) == [("dynamic_model_name", "warning"), ("type_mismatch", "error")]


def test_inputs_that_grow_or_depend_are_not_asked_for(schema: NodeSchema, good: dict[str, Any]) -> None:
    inputs = {"images.image0": ["1", 0], "images.image1": ["1", 0]}
    good["3"] = {"class_type": "BatchImagesNode", "inputs": inputs}
    good["2"]["inputs"]["images"] = ["3", 0]

    assert codes(good, schema) == []


def test_an_asset_that_leads_out_is_an_error(schema: NodeSchema, good: dict[str, Any]) -> None:
    good["1"] = {"class_type": "LoadImage", "inputs": {"image": "../../etc/passwd"}}

    assert codes(good, schema) == [("path_escape", "error")]


@pytest.mark.parametrize(
    ("given", "wanted", "answer"),
    [
        ("IMAGE", "IMAGE", True),
        ("LATENT", "IMAGE", False),
        ("INT", "INT,FLOAT", True),
        ("MASK,IMAGE", "IMAGE", True),
        ("*", "IMAGE", True),
        ("IMAGE", "*", True),
        ("COMFY_MATCHTYPE_V3", "IMAGE", True),
        ("STRING", "COMBO", False),
    ],
)
def test_one_type_in_common_is_enough(given: str, wanted: str, answer: bool) -> None:
    assert fits(given, wanted) is answer


def test_the_value_of_a_widget_is_cut_short(schema: NodeSchema) -> None:
    (found,) = judged(sampler(steps="x" * 10_000), schema)

    assert len(found.message) < 200


@pytest.mark.parametrize("value", ["a\0", ["a", {"b": ["\0"]}], {"__value__": ["\0"]}, {"\0": 1}])
def test_the_character_nul_in_a_value_from_outside_is_found(
    make: Make, schema: NodeSchema, good: dict[str, Any], value: Any
) -> None:
    workflow = apply_overrides(make(good), read_overrides({"1.color": value}), schema=schema)

    found = [one for one in check(workflow, schema) if one.code == "nul_character"]

    assert [(one.severity, one.node, one.field) for one in found] == [("error", "1", "color")]
