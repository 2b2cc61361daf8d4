"""Node schemas: the shipped one, and what servers answer."""

import json
import pickle
from typing import Any

import pytest

from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.schema import NodeSchema


def test_the_shipped_schema_knows_the_core(schema: NodeSchema) -> None:
    assert schema.knows("KSampler")
    assert not schema.knows("VHS_VideoCombine")
    assert schema.outputs("CheckpointLoaderSimple") == ("MODEL", "CLIP", "VAE")
    assert schema.is_output_node("SaveImage")
    assert not schema.is_output_node("KSampler")
    assert schema.is_core("SaveVideo")
    assert NodeSchema.shipped() is schema


def test_inputs_are_typed(schema: NodeSchema) -> None:
    seed = schema.inputs("KSampler")["seed"]

    assert (seed.type, seed.required, seed.min, seed.max, seed.default) == ("INT", True, 0, 2**64 - 1, 0)
    assert schema.inputs("DualCLIPLoader")["device"].required is False
    assert "prompt" not in schema.inputs("SaveImage")


def test_combos_of_both_shapes_are_offered(schema: NodeSchema) -> None:
    listed = schema.offered("KSampler", "scheduler")
    named = schema.offered("ResizeImageMaskNode", "scale_method")

    assert listed is not None
    assert named is not None
    assert "karras" in listed
    assert "lanczos" in named
    assert schema.offered("CheckpointLoaderSimple", "ckpt_name") == ()
    assert schema.offered("KSampler", "seed") is None
    assert schema.offered("Nobody", "x") is None


@pytest.mark.parametrize(
    ("class_type", "name", "kind", "folder"),
    [
        ("LoadImage", "image", "image", "input"),
        ("LoadImageOutput", "image", "image", "output"),
        ("LoadAudio", "audio", "audio", "input"),
        ("LoadVideo", "file", "video", "input"),
        ("Load3D", "model_file", "file", "input"),
        ("KSampler", "seed", None, "input"),
    ],
)
def test_upload_flags_are_read(
    schema: NodeSchema, class_type: str, name: str, kind: str | None, folder: str
) -> None:
    spec = schema.inputs(class_type)[name]

    assert (spec.upload, spec.upload_folder) == (kind, folder)


def server_answer(*models: str) -> dict[str, Any]:
    return {
        "CheckpointLoaderSimple": {
            "input": {"required": {"ckpt_name": [list(models), {}]}},
            "output": ["MODEL"],
            "output_node": False,
        },
        "Odd": {
            "input": {
                "required": {"a": [], "b": "text", "c": [["x", 1]], "d": ["INT", {"max": float("inf")}]},
                "optional": None,
                "hidden": {"prompt": "PROMPT"},
            },
            "output": [["x", "y"], None],
        },
    }


def test_a_servers_answer_is_a_schema_with_infinities_and_oddities() -> None:
    data = json.dumps(server_answer("a.safetensors")).encode()
    schema = NodeSchema.from_object_info(data, name="http://h", live=True)

    assert schema.offered("CheckpointLoaderSimple", "ckpt_name") == ("a.safetensors",)
    assert [spec.type for spec in schema.inputs("Odd").values()] == ["*", "*", "COMBO", "INT"]
    assert schema.outputs("Odd") == ("COMBO", "*")
    assert pickle.loads(pickle.dumps(schema)).knows("Odd")  # noqa: S301


def test_a_class_without_inputs_costs_no_other_class(caplog: pytest.LogCaptureFixture) -> None:
    answer = {**server_answer(), "Broken": {"output": []}, "Worse": None}
    schema = NodeSchema.from_object_info(answer, name="s")

    assert schema.knows("Odd")
    assert not schema.knows("Broken")
    assert "Broken, Worse" in caplog.text
    assert schema.sha256 == NodeSchema.from_object_info(server_answer(), name="s").sha256


def test_files_are_not_in_the_digest_and_classes_are() -> None:
    with_models = NodeSchema.from_object_info(server_answer("a.safetensors", "b"), name="x")
    without = NodeSchema.from_object_info(server_answer(), name="y")
    other = server_answer()
    del other["Odd"]

    assert with_models.sha256 == without.sha256
    assert NodeSchema.from_object_info(other, name="z").sha256 != without.sha256


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":1}', b'{"a":{}}', b"<html>", b"[" * 100_000])
def test_what_is_no_schema_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match="/object_info"):
        NodeSchema.from_object_info(data, name="x")


def test_a_schema_that_was_used_can_be_pickled_and_answers_alike(schema: NodeSchema) -> None:
    used = [schema.inputs(name) for name in ("ImageCropV2", "ResizeImageMaskNode", "CurveEditor")]
    twin = pickle.loads(pickle.dumps(schema))  # noqa: S301

    assert [twin.inputs(name) for name in ("ImageCropV2", "ResizeImageMaskNode", "CurveEditor")] == used
    assert (twin.name, twin.live, twin.sha256) == (schema.name, schema.live, schema.sha256)


def test_the_same_answer_under_two_names_is_read_once() -> None:
    data = json.dumps(server_answer("a")).encode()
    first = NodeSchema.from_object_info(data, name="http://a", live=True)
    second = NodeSchema.from_object_info(data, name="saved.json")

    assert first.inputs("Odd") is second.inputs("Odd")
    assert [(one.name, one.live) for one in (first, second)] == [("http://a", True), ("saved.json", False)]


def test_outputs_that_are_lists_of_options_are_known() -> None:
    schema = NodeSchema.from_object_info(server_answer(), name="s")

    assert schema.outputs("Odd") == ("COMBO", "*")
    assert schema.output_choices("Odd", 0) == ("x", "y")
    assert schema.output_choices("Odd", 1) is None
    assert schema.output_choices("Odd", 2) is None
    assert schema.output_choices("Nobody", 0) is None


def test_paid_services_are_known(schema: NodeSchema) -> None:
    assert schema.needs_account("GeminiNodeV2")
    assert not schema.needs_account("KSampler")
    assert not schema.needs_account("Nobody")
