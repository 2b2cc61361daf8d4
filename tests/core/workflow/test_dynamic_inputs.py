"""Inputs with parts of their own: dynamic combos, groups that grow, match types; what the editor shows."""

import json
import pickle
from typing import Any

import pytest

from comfyfarm.ids import NodeId
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.input_spec import make_spec
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.schema import NodeSchema


def combo(*options: tuple[str, dict[str, Any]]) -> list[Any]:
    return ["COMFY_DYNAMICCOMBO_V3", {"options": [{"key": key, "inputs": inputs} for key, inputs in options]}]


def grows(one: list[Any], *, kind: str = "required", **more: Any) -> list[Any]:
    return ["COMFY_AUTOGROW_V3", {"template": {"input": {kind: {"one": one}}, **more}}]


def schema_of(**inputs: Any) -> NodeSchema:
    made = {"input": {"required": inputs}, "output": ["IMAGE"], "output_node": True}
    return NodeSchema.from_object_info({"Odd": made}, name="saved.json")


def codes(inputs: dict[str, Any], schema: NodeSchema, class_type: str) -> list[tuple[str, str, str | None]]:
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "2": {"class_type": "SolidMask", "inputs": {"value": 1.0, "width": 8, "height": 8}},
        "3": {"class_type": class_type, "inputs": inputs},
        "4": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
        "5": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
        "6": {"class_type": "PreviewAny", "inputs": {"source": ["2", 0]}},
    }
    found = check(Workflow.from_api(graph, name="w"), schema, all_outputs=True)
    return [(f.code, f.severity.value, f.field) for f in found]


def test_the_parts_of_the_chosen_option_stand_behind_their_combo(schema: NodeSchema) -> None:
    longer = schema.expanded("ResizeImageMaskNode", {"resize_type": "scale longer dimension"})
    match = schema.expanded("ResizeImageMaskNode", {"resize_type": {"__value__": "match size"}})
    none = schema.expanded("ResizeImageMaskNode", {"resize_type": "no such"})

    assert list(longer) == ["input", "resize_type", "resize_type.longer_size", "scale_method"]
    assert list(match) == ["input", "resize_type", "resize_type.match", "resize_type.crop", "scale_method"]
    assert list(none) == ["input", "resize_type", "scale_method"]
    assert (longer["resize_type.longer_size"].type, longer["resize_type.longer_size"].max) == ("INT", 16384)
    assert match["resize_type.crop"].options == ("disabled", "center")


@pytest.mark.parametrize("value", [None, 3, True, Link(NodeId("1"), 0), ["1", 0], {"a": 1}, ("x",)])
def test_a_choice_that_is_no_text_has_no_parts(schema: NodeSchema, value: Any) -> None:
    assert list(schema.expanded("ResizeImageMaskNode", {"resize_type": value})) == [
        "input",
        "resize_type",
        "scale_method",
    ]


def test_a_class_without_parts_is_given_as_it_is(schema: NodeSchema) -> None:
    assert schema.expanded("KSampler", {}) == schema.inputs("KSampler")
    assert schema.expanded("KSampler", {}) is schema.expanded("KSampler", {"seed": 1})
    assert schema.expanded("BatchImagesNode", {}) is schema.expanded("BatchImagesNode", {"a": 1})
    assert schema.expanded("Nobody", {"a": 1}) == {}


def test_a_group_is_there_in_its_parts_and_the_first_are_required(schema: NodeSchema) -> None:
    images = schema.expanded("BatchImagesNode", {})
    splats = schema.expanded("MergeSplat", {})
    letters = schema.expanded("StringFormat", {})

    assert list(images)[:2] == ["images.image0", "images.image1"]
    assert len(images) == 50
    assert [spec.required for spec in splats.values()][:3] == [True, True, False]
    assert [*letters][:2] == ["values.a", "values.b"]
    assert not letters["values.a"].required
    assert "f_string" in letters


def test_dynamic_inputs_nest_under_dotted_names() -> None:
    inner = combo(("x", {"required": {"depth": ["INT", {}]}}), ("y", {}))
    schema = schema_of(
        mode=combo(
            ("a", {"required": {"inner": inner, "more": grows(["IMAGE", {}], prefix="m", min=1, max=2)}}),
            ("b", {"optional": {"inner": ["FLOAT", {}]}}),
        ),
        last=["BOOLEAN", {}],
    )

    assert list(schema.expanded("Odd", {"mode": "a", "mode.inner": "x"})) == [
        "mode",
        "mode.inner",
        "mode.inner.depth",
        "mode.more.m0",
        "mode.more.m1",
        "last",
    ]
    assert list(schema.expanded("Odd", {"mode": "a", "mode.inner": "y"}))[-3:] == [
        "mode.more.m0",
        "mode.more.m1",
        "last",
    ]
    chosen = schema.expanded("Odd", {"mode": "b", "mode.inner": "x"})
    assert [(name, spec.type, spec.required) for name, spec in chosen.items()] == [
        ("mode", "COMFY_DYNAMICCOMBO_V3", True),
        ("mode.inner", "FLOAT", False),
        ("last", "BOOLEAN", True),
    ]


def test_a_dynamic_slot_has_its_parts_once_it_is_given() -> None:
    slot = ["COMFY_DYNAMICSLOT_V3", {"slotType": "IMAGE,MASK", "inputs": {"required": {"blur": ["INT", {}]}}}]
    schema = schema_of(slot=slot)

    assert list(schema.expanded("Odd", {})) == ["slot"]
    assert list(schema.expanded("Odd", {"slot": Link(NodeId("1"), 0)})) == ["slot", "slot.blur"]
    assert schema.inputs("Odd")["slot"].allowed == "IMAGE,MASK"


@pytest.mark.parametrize(
    "raw",
    [
        ["COMFY_DYNAMICCOMBO_V3"],
        ["COMFY_DYNAMICCOMBO_V3", {"options": None}],
        [
            "COMFY_DYNAMICCOMBO_V3",
            {"options": [3, {"key": ["a"]}, {"inputs": {}}, {"key": "b", "inputs": 3}]},
        ],
        ["COMFY_AUTOGROW_V3", {}],
        ["COMFY_AUTOGROW_V3", {"template": {"input": {"required": {}}}}],
        ["COMFY_AUTOGROW_V3", {"template": {"input": {"required": {"a": []}}, "prefix": "p", "max": 1e400}}],
        ["COMFY_AUTOGROW_V3", {"template": {"input": {"required": {"a": []}}, "max": float("nan")}}],
        [
            "COMFY_AUTOGROW_V3",
            {"template": {"input": {"required": {"a": "x"}}, "names": [1, None], "min": -4}},
        ],
        ["COMFY_AUTOGROW_V3", {"template": []}],
        ["COMFY_MATCHTYPE_V3", {"template": 3}],
        ["COMFY_DYNAMICSLOT_V3", {"inputs": [1]}],
    ],
)
def test_odd_descriptions_of_dynamic_inputs_are_read_without_a_fault(raw: list[Any]) -> None:
    schema = schema_of(a=raw)

    assert len(schema.expanded("Odd", {"a": "b"})) <= 101
    assert pickle.loads(pickle.dumps(schema)).knows("Odd")  # noqa: S301


def test_nesting_without_end_is_cut_off() -> None:
    raw: list[Any] = ["INT", {}]
    for _ in range(60):
        raw = combo(("x", {"required": {"a": raw}}))

    spec = make_spec("a", raw, required=True)
    depth = 0
    while spec.parts:
        (spec,) = spec.parts["x"]
        depth += 1
    assert depth == 8


def test_the_editors_order_is_input_order(schema: NodeSchema) -> None:
    made = {
        "input": {
            "optional": {"z": ["INT"], "y": ["INT"]},
            "required": {"b": ["INT"], "a": ["INT"], "c": ["INT"]},
        },
        "input_order": {"required": ["a", "b", "gone"], "optional": ["y", "z"]},
    }
    sorted_by_hand = NodeSchema.from_object_info({"Odd": made}, name="s")

    assert list(sorted_by_hand.inputs("Odd")) == ["a", "b", "c", "y", "z"]


def test_what_the_editor_draws_is_known(schema: NodeSchema) -> None:
    sampler = schema.inputs("KSampler")
    made = schema_of(
        seed=["INT", {}],
        noise_seed=["INT", {"control_after_generate": False}],
        pick=[["a", "b"], {"control_after_generate": True}],
        text=["STRING", {"forceInput": True}],
        file=["STRING,FILE_3D", {"widgetType": "STRING"}],
        raw=["IMAGE", {"rawLink": True}],
        prompt=["STRING", {"dynamicPrompts": True}],
        color=["COLOR", {"socketless": True}],
    ).inputs("Odd")

    assert {name for name, spec in sampler.items() if spec.is_widget} == {
        "seed",
        "steps",
        "cfg",
        "sampler_name",
        "scheduler",
        "denoise",
    }
    assert (sampler["seed"].controls, sampler["steps"].controls) == (1, 0)
    assert {name: (spec.is_widget, spec.controls) for name, spec in made.items()} == {
        "seed": (True, 1),
        "noise_seed": (True, 0),
        "pick": (True, 2),
        "text": (False, 0),
        "file": (True, 0),
        "raw": (False, 0),
        "prompt": (True, 0),
        "color": (True, 0),
    }
    assert made["text"].force_input
    assert made["prompt"].dynamic_prompts


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (
            {
                "input": ["1", 0],
                "resize_type": "scale width",
                "resize_type.width": 8,
                "scale_method": "area",
            },
            [],
        ),
        (
            {"input": ["1", 0], "resize_type": "scale width", "scale_method": "area"},
            [("missing_input", "error", "resize_type.width")],
        ),
        (
            {
                "input": ["1", 0],
                "resize_type": "scale width",
                "resize_type.width": 99999,
                "scale_method": "area",
            },
            [("above_max", "error", "resize_type.width")],
        ),
        (
            {
                "input": ["1", 0],
                "resize_type": "match size",
                "resize_type.match": ["1", 0],
                "resize_type.crop": "Center",
                "scale_method": "area",
            },
            [("not_in_list", "error", "resize_type.crop")],
        ),
        (
            {"input": ["1", 0], "resize_type": "Scale Width", "scale_method": "area"},
            [("not_in_list", "warning", "resize_type")],
        ),
        ({"input": ["1", 0], "scale_method": "area"}, [("missing_input", "warning", "resize_type")]),
        (
            {"input": ["1", 0], "resize_type": "scale width", "resize_type.width": 8, "scale_method": "area"}
            | {"resize_type.height": 8},
            [("extra_input", "info", "resize_type.height")],
        ),
    ],
)
def test_the_parts_of_a_dynamic_combo_are_checked(
    schema: NodeSchema, inputs: dict[str, Any], expected: list[Any]
) -> None:
    assert codes(inputs, schema, "ResizeImageMaskNode") == expected


@pytest.mark.parametrize(
    ("class_type", "inputs", "expected"),
    [
        ("BatchImagesNode", {"images.image0": ["1", 0], "images.image49": ["1", 0]}, []),
        ("BatchImagesNode", {}, [("missing_input", "error", "images.image0")]),
        (
            "BatchImagesNode",
            {"images.image0": ["1", 0], "images.image50": ["1", 0]},
            [("unknown_part", "warning", "images.image50")],
        ),
        ("BatchImagesNode", {"images.image0": ["2", 0]}, [("type_mismatch", "error", "images.image0")]),
        ("StringFormat", {"f_string": "x"}, []),
        (
            "StringFormat",
            {"f_string": "x", "values.a": ["1", 0], "values.aa": ["1", 0]},
            [("unknown_part", "warning", "values.aa")],
        ),
        ("CreateList", {"inputs.input0": ["1", 0], "inputs.input1": ["1", 0]}, []),
        (
            "CreateList",
            {"inputs.input0": ["1", 0], "inputs.input1": ["2", 0]},
            [("match_type", "warning", "inputs.input0")],
        ),
        ("ComfySwitchNode", {"switch": True, "on_false": ["1", 0], "on_true": ["1", 0]}, []),
        (
            "ComfySwitchNode",
            {"switch": True, "on_false": ["1", 0], "on_true": ["2", 0]},
            [("match_type", "warning", "on_false")],
        ),
    ],
)
def test_groups_and_match_types_are_checked(
    schema: NodeSchema, class_type: str, inputs: dict[str, Any], expected: list[Any]
) -> None:
    assert codes(inputs, schema, class_type) == expected


def test_a_match_type_that_takes_less_is_warned_of(schema: NodeSchema) -> None:
    inputs = {"input": ["4", 0], "resize_type": "scale width", "resize_type.width": 8, "scale_method": "area"}
    graph = {
        "3": {"class_type": "ResizeImageMaskNode", "inputs": inputs},
        "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "5": {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}},
    }

    (found,) = check(Workflow.from_api(graph, name="w"), schema)

    assert (found.code, found.severity.value, found.node, found.field) == (
        "match_type",
        "warning",
        "3",
        "input",
    )
    assert "IMAGE,MASK" in found.message


def test_every_class_of_the_shipped_schema_can_be_expanded(data_dir: Any, schema: NodeSchema) -> None:
    shipped = json.loads((data_dir.parents[1] / "comfyfarm" / "workflow" / "object_info.json").read_bytes())

    for class_type in shipped:
        for spec in schema.inputs(class_type).values():
            for option in spec.options or () if spec.is_dynamic else ():
                for part in schema.expanded(class_type, {spec.name: option}).values():
                    assert part.type != "COMFY_AUTOGROW_V3"
                    assert part.name.split(".")[0] in schema.inputs(class_type)
