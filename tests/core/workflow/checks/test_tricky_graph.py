"""The rows C and D of the tricky cases, and what a real server says of 52 graphs, case by case."""

import gzip
import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.assets import find_assets
from comfyfarm.workflow.checks.check import check
from comfyfarm.workflow.findings import Finding, Refused, has_errors
from comfyfarm.workflow.graph import Workflow
from comfyfarm.workflow.reading.reader import read
from comfyfarm.workflow.schema import NodeSchema

_CASES = [
    json.loads(line)
    for line in gzip.decompress(
        (Path(__file__).parents[3] / "data" / "tricky" / "cases.jsonl.gz").read_bytes()
    ).splitlines()
]

_MENDED = {"id_int", "meta_key", "scalar_key"}
"""Refused by the server; read as they were meant here, with a warning (C5, B7)."""
_NOT_REFUSED = {"chain3000", "loadimage_missing"}
"""A chain that is only too long for the server's recursion (C12); a picture that is uploaded first."""
_STRICTER = {"slot_neg"}
"""Taken by the server, which counts outputs from the end (C3)."""

_OURS = {
    "exception_during_validation": {"dangling_link", "slot_out_of_range", "bad_link_shape"},
    "exception_during_inner_validation": {"missing_input", "inputs"},
    "bad_linked_input": {"bad_link_shape"},
    "dependency_cycle": {"cycle"},
    "required_input_missing": {"missing_input", "inputs"},
    "invalid_input_type": {"wrong_type"},
    "value_bigger_than_max": {"above_max"},
    "value_smaller_than_min": {"below_min"},
    "return_type_mismatch": {"type_mismatch"},
    "value_not_in_list": {"not_in_list"},
    "custom_validation_failed": {"path_escape"},
}


@pytest.fixture(scope="module")
def live() -> NodeSchema:
    """A running server without models."""
    data = resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes()
    return NodeSchema.from_object_info(data, name="http://h", live=True)


def everything(graph: Any, schema: NodeSchema) -> tuple[Finding, ...]:
    try:
        reading = read(json.dumps(graph).encode(), name="w.json", schema=schema)
    except Refused as exc:
        return exc.findings
    return (*reading.findings, *check(reading.workflow, schema, check_files=schema.live))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["id"])
def test_what_the_server_refuses_is_an_error_and_nothing_else_is(
    case: dict[str, Any], live: NodeSchema
) -> None:
    found = everything(case["graph"], live)
    refused = not case.get("valid", False)

    if case["id"] in _MENDED:
        assert not has_errors(found)
        assert any(f.severity == "warning" for f in found)
    elif case["id"] in _NOT_REFUSED:
        assert not has_errors(found)
    else:
        assert has_errors(found) == (refused or case["id"] in _STRICTER), [str(f) for f in found]


@pytest.mark.parametrize(
    "case",
    [case for case in _CASES if case.get("node_errors") and case["id"] not in _MENDED | _NOT_REFUSED],
    ids=lambda case: case["id"],
)
def test_each_node_error_of_the_server_has_its_finding(case: dict[str, Any], live: NodeSchema) -> None:
    errors = [f for f in everything(case["graph"], live) if f.severity == "error"]

    for node, kind, name in case["node_errors"]:
        codes = _OURS[kind]
        if kind == "dependency_cycle":  # named once, at its first node
            assert [f.code for f in errors] == ["cycle"]
            assert node in errors[0].message
        else:
            assert any(
                (f.code in codes and f.node == node and (name is None or f.field in {name, "inputs"}))
                or (f.code == "missing_input" and kind.startswith("exception_during_inner"))
                for f in errors
            ), (node, kind, name, [str(f) for f in errors])


UNKNOWN: dict[str, Any] = {"class_type": "X", "inputs": {}}
Good = dict[str, Any]
Change = Callable[[Good], None]


def image(width: int = 64, **more: Any) -> dict[str, Any]:
    return {
        "class_type": "EmptyImage",
        "inputs": {"width": width, "height": 64, "batch_size": 1, "color": 0, **more},
    }


def save(source: Any, **more: Any) -> dict[str, Any]:
    return {"class_type": "SaveImage", "inputs": {"images": source, "filename_prefix": "t", **more}}


def invert(source: str) -> dict[str, Any]:
    return {"class_type": "ImageInvert", "inputs": {"image": [source, 0]}}


def load(name: Any) -> dict[str, Any]:
    return {"1": {"class_type": "LoadImage", "inputs": {"image": name}}, "2": save(["1", 0])}


def sampler(**inputs: Any) -> dict[str, Any]:
    values = {"seed": 1, "steps": 2, "cfg": 8.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1}
    links = {"model": ["4", 0], "positive": ["5", 0], "negative": ["5", 0], "latent_image": ["6", 0]}
    merged = {key: value for key, value in {**values, **links, **inputs}.items() if value != "absent"}
    return {
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "m.safetensors"}},
        "5": {"class_type": "CLIPTextEncode", "inputs": {"text": "a", "clip": ["4", 1]}},
        "6": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
        "3": {"class_type": "KSampler", "inputs": merged},
        "8": {"class_type": "VAEDecode", "inputs": {"samples": ["3", 0], "vae": ["4", 2]}},
        "9": save(["8", 0]),
    }


ROWS: list[Any] = [
    pytest.param({"1": image(), "2": save(["99", 0])}, [("dangling_link", "error", "2", "images")], id="C1"),
    pytest.param(
        {"1": image(), "2": save(["1", 5])}, [("slot_out_of_range", "error", "2", "images")], id="C2"
    ),
    pytest.param({"1": image(), "2": save(["1", -1])}, [("slot_negative", "error", "2", "images")], id="C3"),
    pytest.param(
        {"1": image(), "2": save(["1", 0.0])},
        [("bad_link_shape", "error", "2", "images")],
        id="C4-float",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", "0"])},
        [("bad_link_shape", "error", "2", "images")],
        id="C4-text",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", 0, 0])},
        [("bad_link_shape", "error", "2", "images")],
        id="C4-three",
    ),
    pytest.param({"1": invert("1"), "2": save(["1", 0])}, [("cycle", "error", "1", None)], id="C6"),
    pytest.param(
        {"1": invert("3"), "2": invert("1"), "3": invert("2"), "4": save(["3", 0])},
        [("cycle", "error", "1", None)],
        id="C7",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", 0]), "7": invert("8"), "8": invert("7")},
        [("dead_cycle", "warning", "7", None)],
        id="C8-cycle",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", 0]), "7": image(-1)},
        [("dead_node", "warning", "7", "width")],
        id="C8-node",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", 0]), "7": image()},
        [("dead_node", "warning", "7", None)],
        id="C8-good",
    ),
    pytest.param(
        {"1": image(), "2": save(["1", 0]), "9": {"class_type": "NoSuchNode", "inputs": {}}},
        [("unknown_class", "error", "9", "class_type")],
        id="C9",
    ),
    pytest.param(
        {"10:3": image(), "538_604": invert("10:3"), "model_loader": save(["538_604", 0])}, [], id="C13"
    ),
    pytest.param(
        {"1": image(sizes=["a", 2]), "2": save(["1", 0])},
        [("ambiguous_list", "warning", "1", "sizes"), ("extra_input", "info", "1", "sizes")],
        id="C14",
    ),
    pytest.param(
        {"1": image(sizes={"__value__": ["a", 2]}), "2": save(["1", 0])},
        [("extra_input", "info", "1", "sizes")],
        id="C14-wrapped",
    ),
    pytest.param({"1": image(foo=1), "2": save(["1", 0])}, [("extra_input", "info", "1", "foo")], id="C15"),
    pytest.param(
        {"1": image(), "2": save(["1", 0]), "3": image(0), "4": save(["3", 0])},
        [("below_min", "warning", "3", "width"), ("partial", "warning", "4", None)],
        id="C16",
    ),
    pytest.param(
        {
            "1": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
            "2": save(["1", 0]),
        },
        [("type_mismatch", "error", "2", "images")],
        id="D1",
    ),
    pytest.param(sampler(steps="64"), [("coerced", "info", "3", "steps")], id="D2"),
    pytest.param(sampler(steps=64.9), [("coerced", "warning", "3", "steps")], id="D3-float"),
    pytest.param(sampler(steps=True), [("coerced", "warning", "3", "steps")], id="D3-bool"),
    pytest.param(sampler(steps="64px"), [("wrong_type", "error", "3", "steps")], id="D4-text"),
    pytest.param(sampler(steps=None), [("wrong_type", "error", "3", "steps")], id="D4-null"),
    pytest.param(sampler(seed=2**53 + 1), [("js_precision", "warning", "3", "seed")], id="D5"),
    pytest.param(sampler(seed=2**64), [("above_max", "error", "3", "seed")], id="D6-big"),
    pytest.param(sampler(seed=-1), [("below_min", "error", "3", "seed")], id="D6-negative"),
    pytest.param(sampler(seed=1e19), [("coerced", "warning", "3", "seed")], id="D7"),
    pytest.param(sampler(sampler_name="EULER"), [("not_in_list", "error", "3", "sampler_name")], id="D8"),
    pytest.param(sampler(sampler_name="Euler a"), [("not_in_list", "error", "3", "sampler_name")], id="D8-a"),
    pytest.param(sampler(cfg="absent"), [("missing_input", "error", "3", "cfg")], id="D10"),
    pytest.param(
        sampler(sampler_name="brand_new_sampler"),
        [("schema_newer", "warning", "3", "sampler_name")],
        id="D11",
    ),
    pytest.param(load("../../etc/passwd"), [("path_escape", "error", "1", "image")], id="D12-up"),
    pytest.param(load("/abs/x.png"), [("path_escape", "error", "1", "image")], id="D12-absolute"),
    pytest.param(load("C:\\x.png"), [("path_escape", "error", "1", "image")], id="D12-drive"),
    pytest.param(load("a.png [output]"), [], id="D13-output"),
    pytest.param(load("a.png [temp]"), [("temporary_file", "warning", "1", "image")], id="D13-temp"),
    pytest.param(
        load("clipspace/clipspace-mask-1.png [input]"),
        [("temporary_file", "warning", "1", "image")],
        id="D13-clipspace",
    ),
    pytest.param(load("https://h/x.webp"), [("url_asset", "warning", "1", "image")], id="D14"),
]


@pytest.mark.parametrize(("graph", "expected"), ROWS)
def test_a_row_is_judged_as_the_list_says(graph: Good, expected: list[Any], schema: NodeSchema) -> None:
    found = check(Workflow.from_api(graph, name="w.json"), schema)

    assert [(f.code, f.severity.value, f.node, f.field) for f in found] == expected


@pytest.mark.parametrize(
    ("node", "code", "severity"),
    [
        pytest.param({"class_type": "SaveImage", "inputs": {"images": [1, 0]}}, None, "warning", id="C5"),
        pytest.param({"inputs": {}}, "class_type", "error", id="C10-missing"),
        pytest.param({"class_type": None, "inputs": {}}, "class_type", "error", id="C10-null"),
        pytest.param({"class_type": ["a"], "inputs": {}}, "class_type", "error", id="C10-list"),
        pytest.param({"class_type": "SaveImage"}, "missing_input", "error", id="C11-missing"),
        pytest.param({"class_type": "SaveImage", "inputs": None}, "inputs", "error", id="C11-null"),
        pytest.param({"class_type": "SaveImage", "inputs": []}, "inputs", "error", id="C11-list"),
    ],
)
def test_a_row_about_reading_is_judged_as_the_list_says(
    node: dict[str, Any], code: str | None, severity: str, schema: NodeSchema
) -> None:
    found = everything({"1": image(), "2": node}, schema)

    assert severity in [f.severity for f in found if f.node == "2" and code in (None, f.code)]


def test_c7_the_cycle_is_named_in_order(schema: NodeSchema) -> None:
    graph = {"1": invert("3"), "2": invert("1"), "3": invert("2"), "4": save(["3", 0])}

    (found,) = check(Workflow.from_api(graph, name="w"), schema)
    assert found.message == "a cycle: 1 → 2 → 3 → 1"


def test_c9_the_pack_that_has_an_unknown_class_is_named(schema: NodeSchema) -> None:
    graph = {"1": image(), "2": save(["1", 0]), "9": {"class_type": "NoSuchNode", "inputs": {}}}
    packs = {"NoSuchNode": "https://example.org/pack"}

    (found,) = check(Workflow.from_api(graph, name="w"), schema, packs=packs.get)
    assert "https://example.org/pack" in found.message
    assert "https://example.org/pack" in found.remedy


def test_c12_a_long_chain_is_well(schema: NodeSchema) -> None:
    graph = {"0": image(), **{str(n): invert(str(n - 1)) for n in range(1, 3001)}, "end": save(["3000", 0])}

    assert check(Workflow.from_api(graph, name="w"), schema) == ()


def test_c16_the_outputs_that_would_be_skipped_are_named(schema: NodeSchema) -> None:
    graph = {"1": image(), "2": save(["1", 0]), "3": image(0), "4": save(["3", 0]), "5": save(["3", 0])}

    *_, found = check(Workflow.from_api(graph, name="w"), schema)
    assert found.code == "partial"
    assert "4 (SaveImage), 5 (SaveImage)" in found.message
    assert "2 of 3" in found.message
    assert "node 3" in found.remedy


def test_c16_whoever_needs_all_outputs_gets_errors(schema: NodeSchema) -> None:
    graph = {"1": image(), "2": save(["1", 0]), "3": image(0), "4": save(["3", 0])}

    found = check(Workflow.from_api(graph, name="w"), schema, all_outputs=True)
    assert [(f.code, f.severity) for f in found] == [("below_min", "error")]


@pytest.mark.parametrize(
    "graph",
    [
        {"1": image(0), "2": save(["1", 0]), "4": save(["1", 0])},
        {
            "1": image(),
            "2": save(["1", 0]),
            "3": image(0),
            "4": save(["3", 0]),
            "5": {"class_type": "X", "inputs": {}},
        },
        {"1": image(), "2": save(["1", 0]), "3": image(), "4": save(["3", -1])},
    ],
    ids=["all are bad", "an unknown class stops all", "the server sees nothing wrong"],
)
def test_c16_errors_stay_errors_where_the_server_would_not_skip(graph: Good, schema: NodeSchema) -> None:
    found = check(Workflow.from_api(graph, name="w"), schema)

    assert has_errors(found)
    assert "partial" not in {f.code for f in found}


def test_d5_d7_the_exact_number_is_shown(schema: NodeSchema) -> None:
    def message(seed: Any) -> str:
        return check(Workflow.from_api(sampler(seed=seed), name="w"), schema)[0].message

    assert "9007199254740993" in message(2**53 + 1)
    assert "9007199254740992" in message(2**53 + 1)
    assert "10000000000000000000" in message(1e19)


def test_d8_the_difference_in_case_is_said_and_the_nearest_named(schema: NodeSchema) -> None:
    (upper,) = check(Workflow.from_api(sampler(sampler_name="EULER"), name="w"), schema)
    (human,) = check(Workflow.from_api(sampler(sampler_name="Euler a"), name="w"), schema)

    assert "case" in upper.message
    assert upper.remedy == "choose 'euler'"
    assert "'euler" in human.remedy


def test_d9_a_combo_that_is_fed_by_a_link(schema: NodeSchema) -> None:
    made = {
        "Feed": {"input": {"required": {}}, "output": ["STRING", "COMBO", ["a", "b"], ["a"], "*"]},
        "Old": {"input": {"required": {"pick": [["a", "b"], {}]}}, "output": [], "output_node": True},
        "New": {
            "input": {"required": {"pick": ["COMBO", {"options": ["a", "b"]}]}},
            "output": [],
            "output_node": True,
        },
    }
    feeds = NodeSchema.from_object_info(made, name="http://h", live=True)

    def is_taken(class_type: str, slot: int) -> bool:
        graph = {
            "1": {"class_type": "Feed", "inputs": {}},
            "2": {"class_type": class_type, "inputs": {"pick": ["1", slot]}},
        }
        return check(Workflow.from_api(graph, name="w"), feeds) == ()

    assert [is_taken("Old", slot) for slot in range(5)] == [False, False, True, False, True]
    assert [is_taken("New", slot) for slot in range(5)] == [False, True, True, True, True]
    loader = sampler()
    loader["4"]["inputs"]["ckpt_name"] = ["7", 0]
    loader["7"] = {"class_type": "PrimitiveString", "inputs": {"value": "m.safetensors"}}
    found = check(Workflow.from_api(loader, name="w"), schema)
    assert [(f.code, f.severity) for f in found] == [
        ("dynamic_model_name", "warning"),
        ("type_mismatch", "error"),
    ]


def test_d11_the_snapshot_is_named_and_a_live_list_is_true(schema: NodeSchema, live: NodeSchema) -> None:
    graph = Workflow.from_api(sampler(sampler_name="brand_new_sampler"), name="w")

    (found,) = check(graph, schema)
    assert "ComfyUI 0.27" in found.message
    assert [(f.code, f.severity) for f in check(graph, live)] == [("not_in_list", "error")]
    newer = check(
        Workflow.from_api({"1": {"class_type": "NewNode", "inputs": {}}}, name="w"),
        schema,
        packs=lambda _: "comfy-core",
    )
    assert [(f.code, f.severity) for f in newer] == [("schema_newer", "warning"), ("unknown_class", "error")]


def test_d13_d14_assets_are_in_their_folders(schema: NodeSchema) -> None:
    names = ["a.png [output]", "b.png [temp]", "clipspace/c.png [input]", "https://h/x.webp"]
    graph = {str(n): {"class_type": "LoadImage", "inputs": {"image": name}} for n, name in enumerate(names)}

    found = find_assets(Workflow.from_api(graph, name="w"), schema)
    assert [(asset.kind, asset.folder, asset.path) for asset in found] == [
        ("input", "output", "a.png"),
        ("input", "temp", "b.png"),
        ("input", "input", "clipspace/c.png"),
        ("url", "input", "https://h/x.webp"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        {"category": "api node/image/BFL"},
        {"python_module": "comfy_api_nodes.nodes_bfl"},
        {"api_node": True},
        {"input": {"required": {}, "hidden": {"auth_token_comfy_org": "AUTH_TOKEN_COMFY_ORG"}}},
    ],
)
def test_d15_a_paid_service_is_told(raw: dict[str, Any]) -> None:
    made = {"input": {"required": {}}, "output": [], "output_node": True, **raw}
    schema = NodeSchema.from_object_info({"Paid": made}, name="s")

    (found,) = check(Workflow.from_api({"1": {"class_type": "Paid", "inputs": {}}}, name="w"), schema)
    assert (found.code, found.severity, found.node) == ("needs_account_and_network", "warning", "1")


def test_b13_a_blueprint_without_output_is_worth_a_word_and_a_prompt_without_one_an_error(
    schema: NodeSchema,
) -> None:
    graph = Workflow.from_api({"1": image()}, name="w")

    assert [(f.code, f.severity) for f in check(graph, schema, from_editor=True)] == [("no_outputs", "info")]
    assert [(f.code, f.severity) for f in check(graph, schema)] == [("no_outputs", "error")]


def test_e2_folders_as_windows_writes_them(schema: NodeSchema) -> None:
    def codes(graph: Good, against: NodeSchema, **more: Any) -> list[tuple[str, str, str | None]]:
        found = check(Workflow.from_api(graph, name="w"), against, **more)
        return [(f.code, f.severity.value, f.field) for f in found]

    def loads(name: Any) -> Good:
        return {"1": {"class_type": "Load", "inputs": {"unet_name": name}}}

    def server(*names: str) -> NodeSchema:
        made = {"input": {"required": {"unet_name": [[*names], {}]}}, "output": [], "output_node": True}
        return NodeSchema.from_object_info({"UNETLoader": made}, name="http://h", live=True)

    graph = {"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "Wan\\x.safetensors"}}}
    expected = [("separator", "error", "unet_name")]
    plain = {
        "1": {
            "class_type": "UNETLoader",
            "inputs": {"unet_name": "Wan\\x.safetensors", "weight_dtype": "default"},
        },
        "2": {"class_type": "ModelSave", "inputs": {"model": ["1", 0], "filename_prefix": "x"}},
    }
    assert codes(plain, schema) == expected
    assert codes(graph, server("Wan/x.safetensors"), check_files=True) == expected
    assert codes(graph, server("Wan\\x.safetensors"), check_files=True) == []
    assert codes(graph, server("y.safetensors"), check_files=True) == [("not_in_list", "error", "unet_name")]
    assert codes(loads("Wan\\x.safetensors"), schema) == [
        ("unknown_class", "error", "class_type"),
        ("separator", "error", "unet_name"),
    ]
    row = {"on": True, "lora": "a\\b.safetensors", "strength": 1}
    assert codes(loads(row), schema)[1:] == expected
    assert codes(loads({**row, "on": False}), schema)[1:] == []
    assert codes(loads("a \\ b"), schema) == [("unknown_class", "error", "class_type")]


def test_e4_e8_e9_names_of_models(schema: NodeSchema) -> None:
    made = {
        "LoraLoaderModelOnly": {
            "input": {"required": {"lora_name": [["lora/x.safetensors", "None"], {}]}},
            "output": [],
            "output_node": True,
        },
        "VAELoader": {
            "input": {"required": {"vae_name": [["taesd", "pixel_space"], {}]}},
            "output": [],
            "output_node": True,
        },
    }
    server = NodeSchema.from_object_info(made, name="http://h", live=True)

    def found(class_type: str, name: str, value: str) -> tuple[Finding, ...]:
        graph = {"1": {"class_type": class_type, "inputs": {name: value}}}
        return check(Workflow.from_api(graph, name="w"), server, check_files=True)

    (case,) = found("LoraLoaderModelOnly", "lora_name", "Lora/X.safetensors")
    assert (case.code, case.severity, case.remedy) == ("not_in_list", "error", "choose 'lora/x.safetensors'")
    assert "case" in case.message
    assert found("LoraLoaderModelOnly", "lora_name", "None") == ()
    assert found("VAELoader", "vae_name", "taesd") == ()
    assert found("VAELoader", "vae_name", "pixel_space") == ()
    alone = {"1": {"class_type": "VAELoader", "inputs": {"vae_name": "taesd"}}}
    assert [f.code for f in check(Workflow.from_api(alone, name="w"), schema)] == ["no_outputs"]


def _recorded() -> list[Any]:
    path = Path(__file__).parents[3] / "data" / "recordings" / "validation.json.gz"
    return [
        pytest.param(exchange["request_body"]["json"], id=scenario["scenario"])
        for scenario in json.loads(gzip.decompress(path.read_bytes()))
        for exchange in scenario["http"]
        if exchange["path"] == "/prompt"
        and exchange["status"] == 400
        and "not_in" not in scenario["scenario"]
        if scenario["scenario"] != "validation_loadimage_missing_file"  # uploaded first
    ]


@pytest.mark.parametrize("body", _recorded())
def test_what_a_server_was_recorded_to_refuse_is_an_error(body: Any, schema: NodeSchema) -> None:
    assert has_errors(everything(body, schema))


def test_an_input_file_that_a_server_does_not_have_is_told(live: NodeSchema, schema: NodeSchema) -> None:
    def codes(name: str, against: NodeSchema) -> list[tuple[str, str]]:
        found = check(Workflow.from_api(load(name), name="w"), against, check_files=against.live)
        return [(f.code, f.severity.value) for f in found]

    assert codes("nope.png", live) == [("missing_asset", "warning")]
    assert codes("folder/nope.png", live) == []
    assert codes("nope.png", schema) == []


def test_an_empty_list_of_a_server_says_that_there_is_no_file() -> None:
    made = {"input": {"required": {"unet_name": [[], {}]}}, "output": [], "output_node": True}
    server = NodeSchema.from_object_info({"UNETLoader": made}, name="http://h", live=True)
    graph = {"1": {"class_type": "UNETLoader", "inputs": {"unet_name": "x.safetensors"}}}

    (found,) = check(Workflow.from_api(graph, name="w"), server, check_files=True)

    assert (found.code, found.severity) == ("not_in_list", "error")
    assert found.message == "http://h has no 'x.safetensors': it offers no file here at all"
    assert found.remedy == "put the file into the models folder diffusion_models of that server"
