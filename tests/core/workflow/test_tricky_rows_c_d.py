"""Rows C and D of the list of tricky cases, through the whole of preflight; see `test_tricky_rows.py`.

Where the list's own cases have a graph for the row, it is that graph (`tests/data/tricky`).
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.schema import NodeSchema

Look = Callable[..., Any]
Case = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="session")
def case(data_dir: Path) -> Case:
    """A graph of the list's cases, by id; a copy of its own."""
    lines = gzip.decompress((data_dir / "tricky" / "cases.jsonl.gz").read_bytes()).splitlines()
    return lambda name: next(row["graph"] for row in map(json.loads, lines) if row["id"] == name)


def image(**inputs: Any) -> dict[str, Any]:
    return node("EmptyImage", **{"width": 64, "height": 64, "batch_size": 1, "color": 0, **inputs})


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def save(source: Any) -> dict[str, Any]:
    return node("SaveImage", images=source, filename_prefix="t")


def load(name: str) -> dict[str, Any]:
    return {"1": node("LoadImage", image=name), "2": save(["1", 0])}


GOOD = {"1": image(), "2": save(["1", 0])}


def test_c1_a_link_to_no_node(look: Look, case: Case) -> None:
    assert look(case("dangling")).says_where == {"E dangling_link 2.images"}


def test_c2_a_slot_that_the_node_has_not(look: Look, case: Case) -> None:
    assert look(case("slot_oob")).says_where == {"E slot_out_of_range 2.images"}


def test_c3_a_slot_below_zero_which_comfyui_would_take(look: Look, case: Case) -> None:
    assert look(case("slot_neg")).says_where == {"E slot_negative 2.images"}


@pytest.mark.parametrize("name", ["slot_float", "slot_float_frac", "slot_str", "link3"])
def test_c4_what_is_nearly_a_link(look: Look, case: Case, name: str) -> None:
    assert look(case(name)).says_where == {"E bad_link_shape 2.images"}


def test_c5_a_numeric_id_is_read_as_text_with_a_warning(look: Look, case: Case) -> None:
    assert look(case("id_int")).says_where == {"W numeric_link_id 2.images"}


def test_c6_a_node_that_takes_from_itself(look: Look, case: Case) -> None:
    seen = look(case("self_loop"))

    assert seen.says_where == {"E cycle 1.None"}
    assert "1 → 1" in seen.words("cycle")


def test_c7_a_cycle_of_three_is_told_once(look: Look, case: Case) -> None:
    seen = look(case("cycle3"))

    assert [(f.code, f.severity.value) for f in seen.report.findings] == [("cycle", "error")]
    assert "1 → 2 → 3 → 1" in seen.words("cycle")


def test_c8_what_no_output_needs_is_a_warning(look: Look, case: Case) -> None:
    assert look(case("cycle_unreachable")).says_where == {"W dead_cycle 7.None"}
    assert look(case("dead_bad_node")).says_where == {"W dead_node 9.None"}
    assert look({**GOOD, "9": image(width=-1)}).says_where == {"W dead_node 9.width"}
    assert look({**GOOD, "9": node("ImageInvert", image=["99", 0])}).says_where == {"W dead_node 9.image"}


def test_c9_an_unknown_class_stops_all_wherever_it_is(look: Look, case: Case) -> None:
    assert "E unknown_class 9.class_type" in look(case("dead_unknown_class")).says_where


@pytest.mark.parametrize("name", ["class_missing", "class_null", "class_list", "class_dead_missing"])
def test_c10_a_node_without_a_usable_class(look: Look, case: Case, name: str) -> None:
    assert "E class_type" in look(case(name)).says


def test_c11_missing_inputs_are_none_and_others_are_an_error(look: Look, case: Case) -> None:
    required = {f"E missing_input 1.{name}" for name in ("width", "height", "batch_size", "color")}

    assert look(case("inputs_missing")).says_where == required
    assert look(case("inputs_null")).says_where == {"E inputs 1.inputs", *required}
    assert look(case("inputs_list")).says_where == {"E inputs 1.inputs", *required}


def test_c12_a_chain_of_three_thousand_is_well(look: Look, case: Case) -> None:
    assert look(case("chain3000")).says == set()


def test_c13_ids_are_any_texts(look: Look, case: Case) -> None:
    graph = {"10:3": image(), "538_604": node("ImageInvert", image=["10:3", 0]), "a": save(["538_604", 0])}

    assert look(case("id_dots")).says == set()
    assert look({**graph, "model_loader": save(["10:3", 0])}).says == set()


def test_c14_a_list_that_reads_as_a_link_is_ambiguous(look: Look, case: Case) -> None:
    seen = look({"1": image(sizes=["a", 2]), "2": save(["1", 0])})

    assert seen.says_where == {"W ambiguous_list 1.sizes", "I extra_input 1.sizes"}
    assert not look(case("wrapped_value")).report.has_errors


def test_c15_an_input_beyond_the_schema_is_told_and_kept(look: Look, case: Case) -> None:
    row = {"on": True, "lora": "a.safetensors", "strength": 1}
    grown = node("BatchImagesNode", **{"images.image0": ["1", 0], "images.image1": ["1", 0]})

    assert look(case("extra_input")).says_where == {"I extra_input 1.foo"}
    assert look({**GOOD, "3": node("Power Lora Loader (rgthree)", lora_1=row)}).models == [
        "3.lora_1 loras/a.safetensors file"
    ]
    assert look({"1": image(), "3": grown, "2": save(["3", 0])}).says == set()


def test_c16_an_output_that_would_be_skipped_is_named(look: Look) -> None:
    seen = look({**GOOD, "3": image(width=0), "4": save(["3", 0])})

    assert seen.says == {"W partial", "W below_min"}
    assert "4 (SaveImage)" in seen.words("partial")


def test_d1_another_type_is_refused_and_what_may_be_any_passes(look: Look, case: Case) -> None:
    made = {
        "Give": {"input": {"required": {}}, "output": ["*", "INT", ["a", "b"]], "output_node": True},
        "Take": {
            "input": {"required": {"a": ["IMAGE"], "b": ["INT,FLOAT"], "c": [["a", "b"]], "d": ["*"]}},
            "output": [],
            "output_node": True,
        },
    }
    schema = NodeSchema.from_object_info(made, name="s")
    take = node("Take", a=["1", 0], b=["1", 1], c=["1", 2], d=["1", 1])
    match = {"1": image(), "2": node("ComfySwitchNode", switch=True, on_false=["1", 0], on_true=["1", 0])}

    assert look(case("type_mismatch")).says_where == {"E type_mismatch 2.images"}
    assert look({"1": node("Give"), "2": take}, schema=schema).says == set()
    assert look({**match, "3": save(["2", 0])}).says == set()


def test_d2_a_number_as_text_is_taken(look: Look, case: Case) -> None:
    assert look(case("int_as_str")).says_where == {"I coerced 1.width"}


@pytest.mark.parametrize(("name", "taken"), [("int_float", "64"), ("int_bool", "1")])
def test_d3_a_fraction_or_truth_value_is_cut_with_a_warning(
    look: Look, case: Case, name: str, taken: str
) -> None:
    assert look(case(name)).says_where == {"W coerced 1.width"}
    assert f"taken as {taken}" in look(case(name)).words("coerced")


@pytest.mark.parametrize("name", ["int_bad_str", "int_null"])
def test_d4_no_number_at_all(look: Look, case: Case, name: str) -> None:
    assert look(case(name)).says_where == {"E wrong_type 1.width"}


def test_d5_a_seed_beyond_what_browsers_can_hold(look: Look, case: Case) -> None:
    seen = look(case("seed_2^53+1"))

    assert seen.says_where == {"W js_precision 3.seed"}
    assert "9007199254740993" in seen.words("js_precision")


def test_d6_a_seed_out_of_range(look: Look, case: Case) -> None:
    assert look(case("seed_2^64")).says_where == {"E above_max 3.seed"}
    assert look(case("seed_neg")).says_where == {"E below_min 3.seed"}


def test_d7_a_seed_with_an_exponent_is_told_as_the_exact_number(look: Look, case: Case) -> None:
    seen = look(case("seed_float_1e19"))

    assert seen.says_where == {"W coerced 3.seed"}
    assert "10000000000000000000" in seen.words("coerced")


@pytest.mark.parametrize("name", ["enum_case", "enum_bad"])
def test_d8_a_choice_that_is_not_there_with_the_nearest(look: Look, case: Case, name: str) -> None:
    assert look(case(name)).says_where == {"E not_in_list 3.sampler_name"}
    assert "'euler" in look(case(name)).words("not_in_list")


def test_d9_a_combo_that_is_fed_by_a_link(look: Look, case: Case) -> None:
    graph = case("enum_link")
    graph["3"]["inputs"]["sampler_name"] = "euler"
    graph["70"] = node("PrimitiveString", value="a.safetensors")
    graph["4"]["inputs"]["ckpt_name"] = ["70", 0]

    assert look(case("enum_link")).says_where == {"E type_mismatch 3.sampler_name"}
    assert look(graph).says_where == {"W dynamic_model_name 4.ckpt_name", "E type_mismatch 4.ckpt_name"}
    assert look(graph).models == ["70.value checkpoints/a.safetensors file"]


def test_d10_a_required_value_that_is_left_out(look: Look, case: Case) -> None:
    assert look(case("required_missing")).says_where == {"E missing_input 3.cfg"}


def test_d11_a_choice_that_a_newer_version_may_have(look: Look, case: Case) -> None:
    graph = case("missing_model")
    graph["3"]["inputs"]["sampler_name"] = "brand_new_sampler"

    assert look(graph).says_where == {"W schema_newer 3.sampler_name"}
    assert "0.27" in look(graph).words("schema_newer")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs/x.png", "C:\\x.png", "a\\..\\..\\x.png"])
def test_d12_a_path_out_of_the_folder_of_inputs(look: Look, name: str) -> None:
    assert look(load(name)).says_where == {"E path_escape 1.image"}


@pytest.mark.parametrize(
    ("name", "asset", "said"),
    [
        ("a.png [output]", "output/a.png", set()),
        ("a.png [input]", "input/a.png", set()),
        ("a.png [temp]", "temp/a.png", {"W temporary_file"}),
        (
            "clipspace/clipspace-mask-1.png [input]",
            "input/clipspace/clipspace-mask-1.png",
            {"W temporary_file"},
        ),
    ],
)
def test_d13_the_folder_stands_behind_the_name(look: Look, name: str, asset: str, said: set[str]) -> None:
    assert look(load(name)).assets == [f"1.image {asset} input"]
    assert look(load(name)).says == said


def test_d14_an_address_is_an_asset_of_another_kind(look: Look) -> None:
    seen = look(load("https://h/x.webp"))

    assert seen.assets == ["1.image input/https://h/x.webp url"]
    assert seen.says_where == {"W url_asset 1.image"}


def test_d15_a_paid_service_is_told(look: Look) -> None:
    seen = look({"1": node("FluxProUltraImageNode", prompt="a"), "2": save(["1", 0])})

    assert "W needs_account_and_network 1.class_type" in seen.says_where
