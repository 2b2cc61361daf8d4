"""Values to names: `widgets_values` of all ages."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import Converted, convert
from comfyfarm.workflow.ui.placing import default_of, is_control, place

Run = Callable[..., Converted]
Tricky = Callable[[str], Any]
Make = Callable[..., Any]
SAMPLER = {"seed": 7, "steps": 20, "cfg": 8, "sampler_name": "euler", "scheduler": "normal", "denoise": 1}


def inputs(made: Converted, node: str) -> dict[str, Any]:
    found: dict[str, Any] = made.graph[node]["inputs"]
    return found


@pytest.mark.parametrize(
    "values",
    [
        [7, "randomize", 20, 8, "euler", "normal", 1],
        [7, True, 20, 8, "euler", "normal", 1],
        [7, False, 20, 8, "euler", "normal", 1],
        [7, 20, 8, "euler", "normal", 1],
        [7, "fixed", 20, 8, "euler", "normal"],
        [7, "fixed", 20, 8, "euler", "normal", 1, "left over"],
    ],
)
def test_f14_a_sampler_of_every_age_gets_the_same_values(run: Run, node: Make, values: list[Any]) -> None:
    made = run({"nodes": [node(1, "KSampler", *values)], "links": []})

    assert inputs(made, "1") == SAMPLER
    assert [f.code for f in made.findings] == (["extra_widget_values"] if "left over" in values else [])


@pytest.mark.parametrize("name", ["e17", "e25", "e6_base"])
def test_f14_files_with_and_without_control_values(run: Run, tricky: Tricky, name: str) -> None:
    found = inputs(run(tricky(name)), "5")

    assert {key: found[key] for key in SAMPLER} == SAMPLER | {"seed": 7 if name == "e25" else 1}


def test_values_that_the_file_has_not_are_those_the_editor_starts_with(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "CLIPLoader", "clip.safetensors")], "links": []})

    assert inputs(made, "1") == {
        "clip_name": "clip.safetensors",
        "type": "stable_diffusion",
        "device": "default",
    }


def test_b6_values_may_stand_under_their_names(run: Run, tricky: Tricky, node: Make) -> None:
    assert inputs(run(tricky("e15")), "1") == {"ckpt_name": "dict.safetensors"}

    made = run({"nodes": [node(1, "VHS_LoadVideo", widgets_values={"video": "a.mp4"})], "links": []})
    assert inputs(made, "1") == {"video": "a.mp4"}


def test_f16_the_value_of_a_widget_with_a_socket_counts_where_nothing_is_linked(run: Run, node: Make) -> None:
    made = run(
        {
            "nodes": [
                node(1, "VAELoader", "ae.safetensors", inputs={"vae_name": ("COMBO", None, "w")}),
                node(2, "PrimitiveInt", 99, "fixed", outputs=["INT"]),
                node(3, "EmptyLatentImage", 1, 2, 3, inputs={"width": ("INT", 10, "w")}),
            ],
            "links": [[10, 2, 0, 3, 0, "INT"]],
        }
    )

    assert inputs(made, "1") == {"vae_name": "ae.safetensors"}
    assert inputs(made, "3") == {"width": ["2", 0], "height": 2, "batch_size": 3}


def test_f17_parts_of_dynamic_combos_have_dotted_names(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "EmptyImage", 1, 1, 1, 0, outputs=["IMAGE"]),
            node(
                2,
                "ResizeImageMaskNode",
                "scale dimensions",
                640,
                480,
                "disabled",
                "lanczos",
                inputs={"input": ("IMAGE", 1)},
                outputs=["IMAGE"],
            ),
            node(
                3,
                "BatchImagesNode",
                inputs={"images.image0": ("IMAGE", 2), "images.image1": ("IMAGE", 3)},
            ),
        ],
        "links": [[1, 1, 0, 2, 0, "IMAGE"], [2, 1, 0, 3, 0, "IMAGE"], [3, 2, 0, 3, 1, "IMAGE"]],
    }
    made = run(tree)

    assert inputs(made, "2") == {
        "resize_type": "scale dimensions",
        "resize_type.width": 640,
        "resize_type.height": 480,
        "resize_type.crop": "disabled",
        "scale_method": "lanczos",
        "input": ["1", 0],
    }
    assert inputs(made, "3") == {"images.image0": ["1", 0], "images.image1": ["2", 0]}


def test_links_to_parts_that_the_chosen_option_has_not_are_dropped_and_told(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "EmptyImage", 1, 1, 1, 0, outputs=["IMAGE"]),
            node(
                2,
                "ResizeImageMaskNode",
                "scale by magic",
                "lanczos",
                inputs={"input": ("IMAGE", 1), "resize_type.match": ("IMAGE", 2)},
            ),
        ],
        "links": [[1, 1, 0, 2, 0, "IMAGE"], [2, 1, 0, 2, 1, "IMAGE"]],
    }
    made = run(tree)

    assert inputs(made, "2") == {
        "resize_type": "scale by magic",
        "scale_method": "lanczos",
        "input": ["1", 0],
    }
    assert [(f.code, f.field) for f in made.findings] == [("dropped_input", "resize_type.match")]


def test_values_of_inputs_that_have_only_a_socket_now_go(run: Run, node: Make) -> None:
    # `shift` values of old files stand where there is a socket today.
    schema = NodeSchema.from_object_info(
        {
            "Old": {
                "input": {"required": {"a": ["INT", {"forceInput": True}], "b": ["INT", {}]}},
                "output": [],
            }
        },
        name="test",
    )

    for values, expected in (([1, 2], 2), ([2], 2)):
        made = convert({"nodes": [node(1, "Old", *values)], "links": []}, schema)
        assert made.graph["1"]["inputs"] == {"b": expected}


def test_values_that_cannot_be_are_told(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "EmptyLatentImage", "wide", 2, 3)], "links": []})

    assert inputs(made, "1")["width"] == "wide"
    assert [(f.code, str(f.severity)) for f in made.findings] == [("misplaced_values", "warning")]


def test_values_behind_links_may_be_anything(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "PrimitiveInt", 9, "fixed", outputs=["INT"]),
            node(2, "EmptyLatentImage", False, 2, 3, inputs={"width": ("INT", 1, "w")}),
        ],
        "links": [[1, 1, 0, 2, 0, "INT"]],
    }

    assert run(tree).findings == ()


def test_model_names_that_no_input_takes_stay_with_the_node(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "VAELoader", "ae.safetensors", "more.safetensors")], "links": []})

    assert inputs(made, "1") == {"vae_name": "ae.safetensors"}
    assert made.nodes[0].inputs["widgets_values"] == {"__value__": ("more.safetensors",)}
    assert [f.code for f in made.findings] == ["extra_widget_values"]


def test_what_an_upload_button_leaves_behind_is_no_finding(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "LoadImage", "a.png", "image")], "links": []})

    assert inputs(made, "1") == {"image": "a.png"}
    assert made.findings == ()


def test_options_of_ones_own_have_names(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "CustomCombo", "b", 1, "a", "b", "")], "links": []})

    assert inputs(made, "1") == {"choice": "b", "index": 1, "option1": "a", "option2": "b", "option3": ""}


@pytest.mark.parametrize(
    ("values", "more", "expected"),
    [
        (["a.safetensors", 5, "fixed"], {}, {"model": "a.safetensors", "seed": 5}),
        (["a.safetensors", 5], {}, {"model": "a.safetensors", "seed": 5}),
        (["a.safetensors", 5, 6], {}, None),
        (["a.safetensors"], {}, None),
        (
            ["a.safetensors", 5, "fixed", 0.5],
            {
                "widgets_values_named": {
                    "model": "a.safetensors",
                    "seed": 5,
                    "control_after_generate": "fixed",
                    "strength": 0.5,
                }
            },
            {"model": "a.safetensors", "seed": 5, "strength": 0.5},
        ),
        # Named values that do not say what the others say are stale.
        (["a.safetensors", 5, 6], {"widgets_values_named": {"model": "b", "seed": 5, "x": 6}}, None),
    ],
)
def test_f15_values_of_an_unknown_class_get_names_when_they_fit(
    run: Run, node: Make, values: list[Any], more: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    slots = {"model": ("COMBO", None, "w"), "seed": ("INT", None, "w")}
    made = run({"nodes": [node(1, "Odd", *values, inputs=slots, **more)], "links": []})

    assert inputs(made, "1") == (expected or {"widgets_values": {"__value__": values}})


def test_rows_of_loras_have_the_names_that_their_pack_queues_them_by(run: Run, node: Make) -> None:
    rows = [{"on": True, "lora": "a.safetensors", "strength": 1}, {"on": False, "lora": "b.safetensors"}]
    values = [{}, {"type": "PowerLoraLoaderHeaderWidget"}, *rows, {}, ""]
    made = run({"nodes": [node(1, "Power Lora Loader (rgthree)", *values)], "links": []})

    assert inputs(made, "1") == {"lora_1": rows[0], "lora_2": rows[1]}


def test_what_the_editor_starts_with(schema: NodeSchema) -> None:
    sampler = schema.inputs("KSampler")

    assert default_of(sampler["steps"]) == 20
    assert default_of(sampler["sampler_name"]) == "euler"
    assert default_of(schema.inputs("VAELoader")["vae_name"]) in {None, "pixel_space"}
    assert is_control("randomize")
    assert not is_control(["randomize"])


def test_the_editors_way_is_kept_when_no_other_fits(schema: NodeSchema) -> None:
    layout = [spec for spec in schema.inputs("KSampler").values() if spec.is_widget]
    found = place(layout, ["x", "y", "z"])

    assert (found.named["seed"], found.named["steps"]) == ("x", "z")
    assert found.misfits == ["seed", "steps"]
