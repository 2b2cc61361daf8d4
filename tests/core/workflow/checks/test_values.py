"""Literals against their types: converted as ComfyUI converts them, and told when that changes them."""

from typing import Any

import pytest

from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.checks.likeness import nearest
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.model_files import is_model_file
from comfyfarm.workflow.node import texts_in
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.shown import shown

_TYPES = {
    "i": ["INT", {"min": 0, "max": 10}],
    "f": ["FLOAT", {"min": 0.5}],
    "s": ["STRING", {}],
    "b": ["BOOLEAN", {}],
    "c": ["COMBO", {"options": ["one", "two three", "v1.5"]}],
    "n": [[8, 16], {}],
    "m": ["COMBO", {"options": ["a", "b"], "multiselect": True}],
    "e": ["COMBO", {"options": []}],
    "x": ["IMAGE", {}],
    "u": ["INT,FLOAT", {}],
    "big": ["INT", {}],
    "filename_prefix": ["STRING", {}],
}


def schema_of(*, live: bool = False) -> NodeSchema:
    made = {"input": {"optional": _TYPES}, "output": [], "output_node": True}
    return NodeSchema.from_object_info({"Odd": made}, name="saved.json", live=live)


def codes(name: str, value: Any, *, live: bool = False) -> list[tuple[str, str]]:
    graph = {"1": {"class_type": "Odd", "inputs": {name: value}}}
    found = check(Workflow.from_api(graph, name="w"), schema_of(live=live))
    assert all(f.field == name for f in found)
    return [(f.code, f.severity.value) for f in found]


GOOD: list[tuple[str, Any]] = [
    ("i", 0),
    ("i", 10),
    ("i", 10.0),
    ("i", {"__value__": 3}),
    ("f", 1),
    ("f", 0.5),
    ("s", ""),
    ("s", "50 %"),
    ("s", "%year%"),
    ("b", True),
    ("c", "one"),
    ("n", 8),
    ("n", 8.0),
    ("m", "a"),
    ("m", {"__value__": ["a", "b"]}),
    ("e", "anything"),
    ("u", "text"),
    ("big", 2**53),
    ("big", 10**16),
    ("filename_prefix", "a/%year%-%month%"),
    ("s", "100%.5%"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_is_taken_as_it_is_has_no_finding(name: str, value: Any) -> None:
    assert codes(name, value) == []


CHANGED: list[tuple[str, Any, str, str]] = [
    ("i", " 7 ", "coerced", "info"),
    ("i", "7", "coerced", "info"),
    ("i", 7.5, "coerced", "warning"),
    ("i", True, "coerced", "warning"),
    ("f", "1e0", "coerced", "info"),
    ("f", "nan", "coerced", "warning"),
    ("f", True, "coerced", "warning"),
    ("s", 5, "coerced", "info"),
    ("s", False, "coerced", "info"),
    ("s", None, "coerced", "warning"),
    ("s", {"a": 1}, "coerced", "warning"),
    ("s", {"__value__": ["a"]}, "coerced", "warning"),
    ("b", 1, "coerced", "info"),
    ("b", 0.0, "coerced", "info"),
    ("b", "false", "coerced", "warning"),
    ("b", None, "coerced", "warning"),
    ("x", "text", "not_linked", "warning"),
    ("x", None, "not_linked", "warning"),
    ("big", 2**53 + 1, "js_precision", "warning"),
    ("big", 2**60, "js_precision", "warning"),
    ("big", -(2**63), "js_precision", "warning"),
    ("big", 1e19, "coerced", "warning"),
    ("unknown", 2**63 - 1, "js_precision", "warning"),
    ("s", "a %date:yyyy-MM-dd% b", "frontend_token", "info"),
    ("filename_prefix", "x/%KSampler.seed%", "frontend_token", "info"),
]


@pytest.mark.parametrize(("name", "value", "code", "severity"), CHANGED)
def test_what_is_changed_or_fails_later_is_told(name: str, value: Any, code: str, severity: str) -> None:
    assert [found for found in codes(name, value) if found[0] != "extra_input"] == [(code, severity)]


BAD: list[tuple[str, Any, str]] = [
    ("i", "x", "wrong_type"),
    ("i", None, "wrong_type"),
    ("i", {"a": 1}, "wrong_type"),
    ("i", "", "wrong_type"),
    ("i", {"__value__": [1]}, "wrong_type"),
    ("f", "1,5", "wrong_type"),
    ("i", -1, "below_min"),
    ("i", 11, "above_max"),
    ("i", 2**64, "above_max"),
    ("f", 0.49, "below_min"),
    ("i", "9" * 5000, "wrong_type"),
    ("c", None, "not_in_list"),
    ("c", 3, "not_in_list"),
    ("c", "ONE", "not_in_list"),
    ("c", "Two_Three", "not_in_list"),
    ("c", "two thre", "not_in_list"),
    ("n", 12, "not_in_list"),
    ("n", "8", "not_in_list"),
    ("m", {"__value__": ["a", 3]}, "not_in_list"),
]


@pytest.mark.parametrize(("name", "value", "code"), BAD)
def test_what_comfyui_refuses_is_an_error(name: str, value: Any, code: str) -> None:
    assert codes(name, value) == [(code, "error")]


@pytest.mark.parametrize("value", ["v1.6", "four", "one more thing", "one hd", "3"])
def test_a_choice_unlike_all_others_may_be_newer_than_a_snapshot_and_is_wrong_on_a_server(value: str) -> None:
    assert codes("c", value) == [("schema_newer", "warning")]
    assert codes("c", value, live=True) == [("not_in_list", "error")]


def test_what_the_converter_has_told_is_not_told_again() -> None:
    graph = Workflow.from_api({"1": {"class_type": "Odd", "inputs": {"s": "%date:yy%"}}}, name="w")

    assert [f.code for f in check(graph, schema_of())] == ["frontend_token"]
    assert check(graph, schema_of(), from_editor=True) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "'a'"),
        (None, "null"),
        ((1, {"a": None}), '[1, {"a": null}]'),
        ("https://u:secret@h/x", "'https://***@h/x'"),
        ("https://h/x?token=secret&a=1", "'https://h/x?token=***&a=1'"),
    ],
)
def test_values_are_shown_short_and_without_secrets(value: Any, expected: str) -> None:
    assert shown(value) == expected


@pytest.mark.parametrize("value", ["x" * 10**6, ("y",) * 10**5, {"z": "z" * 1000}, 10**300])
def test_long_values_are_cut(value: Any) -> None:
    assert len(shown(value)) == 61


def test_texts_inside_values_are_found_without_recursion() -> None:
    deep: Any = "end"
    for _ in range(5000):
        deep = (deep,)

    assert [*texts_in(deep)] == ["end"]
    assert [*texts_in({"a": ("b", 1, None, {"c": "d"}), "e": True}, keys=True)] == ["a", "e", "b", "c", "d"]


def test_names_of_model_files_are_told_by_their_end() -> None:
    assert is_model_file("a\\b.SAFETENSORS")
    assert is_model_file("x.pth ")
    assert not is_model_file("a.png")
    assert not is_model_file("safetensors")


def test_of_very_many_options_those_of_the_same_beginning_are_compared() -> None:
    many = tuple(f"model_{n}.safetensors" for n in range(5000))

    assert "model_77.safetensors" in nearest("Model_77.safetensors", many)
    assert nearest("other", many) == ()
    assert nearest("sub\\model_9.safetensors", many) == ("model_9.safetensors",)


def test_a_password_is_not_shown_however_far_its_end_is() -> None:
    assert "hunter2" not in shown("https://me:hunter2" + "x" * 200 + "@host/a.safetensors")
