"""Subgraphs: ids, nesting, and widgets that their instances show."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.ui.convert import Converted

Run = Callable[..., Converted]
Tricky = Callable[[str], Any]
Make = Callable[..., Any]
KEY = "7db92ebb-840a-4c81-927e-6929224c69b5"
OUTER = "0db92ebb-840a-4c81-927e-6929224c69b5"


def inputs(made: Converted, node: str) -> dict[str, Any]:
    found: dict[str, Any] = made.graph[node]["inputs"]
    return found


def host_findings(made: Converted) -> list[tuple[str, str]]:
    return [(f.node or "", f.field or "") for f in made.findings if f.code == "host_vs_inner"]


@pytest.mark.parametrize(
    ("name", "node", "field", "host", "inner"),
    [
        ("e1_", "13:2", "unet_name", "CHANGED_UNET.safetensors", "z_image_turbo_bf16.safetensors"),
        ("e27", "19:1", "ckpt_name", "INST_h.safetensors", "hunyuan_3d_v2.1.safetensors"),
        (
            "e24",
            "188:29",
            "vae_name",
            "INST_Wan2_1_VAE_bf16.safetensors",
            "Wan2_1_VAE_bf16.safetensors",
        ),
    ],
)
def test_f7_editors_of_different_age_run_different_values(
    run: Run, tricky: Tricky, name: str, node: str, field: str, host: str, inner: str
) -> None:
    old, new = run(tricky(name), editor="1.45"), run(tricky(name), editor="1.58")

    assert inputs(old, node)[field] == inner
    assert inputs(new, node)[field] == host
    for made, other in ((old, host), (new, inner)):
        assert (node, field) in host_findings(made)
        listed = next(item for item in made.nodes if item.id == node)
        assert listed.others[field] == other


def test_f7_values_by_the_id_of_the_inner_node(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e3"))

    assert host_findings(made)
    for node, field in host_findings(made):
        assert inputs(made, node)[field] != inputs(run(tricky("e3"), editor="1.45"), node)[field]


@pytest.mark.parametrize("name", ["e0_", "e2_"])
def test_instances_that_agree_or_say_nothing_are_no_finding(run: Run, tricky: Tricky, name: str) -> None:
    assert host_findings(run(tricky(name))) == []
    assert run(tricky(name), editor="1.45").graph == run(tricky(name)).graph


def test_f8_two_instances_of_one_definition_are_two_sets(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e4"))

    first = {key.partition(":")[2] for key in made.graph if key.startswith("84:")}
    second = {key.partition(":")[2] for key in made.graph if key.startswith("984:")}
    assert first == second
    assert len(first) > 10


def test_f9_nested_ids_are_paths_of_the_ids_in_the_file(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e0_"))

    assert made.graph["13:76:10"]["class_type"] == "UNETLoader"
    assert inputs(made, "13:76:10")["unet_name"] == "lotus-depth-d-v1-1.safetensors"
    assert inputs(made, "13:76:23")["pixels"] == ["13:14", 0]


@pytest.fixture
def loader(node: Make, subgraph: Make) -> Any:
    """A file with one instance of a subgraph that holds a loader and passes an image through."""
    inside = [
        node(1, "VAELoader", "inner.safetensors", inputs={"vae_name": ("COMBO", 1, "w")}, outputs=["VAE"]),
        node(2, "VAEEncode", inputs={"pixels": ("IMAGE", 2), "vae": ("VAE", 3)}, outputs=["LATENT"]),
    ]
    rows = [
        [1, -10, 0, 1, 0, "COMBO"],
        [2, -10, 1, 2, 0, "IMAGE"],
        [3, 1, 0, 2, 1, "VAE"],
        [4, 2, 0, -20, 0, "LATENT"],
        [5, -10, 1, -20, 1, "IMAGE"],
    ]
    given = {"vae_name": "COMBO", "image": "IMAGE"}
    made = subgraph(KEY, inside, rows, inputs=given, outputs={"latent": "LATENT", "image": "IMAGE"})
    host = node(
        7,
        KEY,
        inputs={"vae_name": ("COMBO", None, "w"), "image": ("IMAGE", 20)},
        outputs=["LATENT", "IMAGE"],
    )
    return {
        "nodes": [
            node(5, "EmptyImage", 64, 64, 1, 0, outputs=["IMAGE"]),
            host,
            node(8, "VAEDecode", inputs={"samples": ("LATENT", 21), "vae": ("VAE", None)}, outputs=["IMAGE"]),
            node(9, "PreviewImage", inputs={"images": ("IMAGE", 22)}),
        ],
        "links": [[20, 5, 0, 7, 1, "IMAGE"], [21, 7, 0, 8, 0, "LATENT"], [22, 7, 1, 9, 0, "IMAGE"]],
        "definitions": {"subgraphs": [made]},
    }


def test_links_go_through_the_walls_of_a_subgraph_both_ways(run: Run, loader: Any) -> None:
    made = run(loader)

    assert list(made.graph) == ["5", "7:1", "7:2", "8", "9"]
    assert inputs(made, "7:2") == {"pixels": ["5", 0], "vae": ["7:1", 0]}
    assert inputs(made, "8") == {"samples": ["7:2", 0]}
    assert inputs(made, "9") == {"images": ["5", 0]}  # straight through
    assert made.findings == ()


@pytest.mark.parametrize(
    ("proxies", "values", "expected"),
    [
        (None, ["host.safetensors"], "host.safetensors"),
        (None, [None], "inner.safetensors"),
        (None, [], "inner.safetensors"),
        (None, {"vae_name": "host.safetensors"}, "host.safetensors"),
        ([["-1", "vae_name"]], ["host.safetensors"], "host.safetensors"),
        ([["1", "vae_name"]], ["host.safetensors"], "host.safetensors"),
        ([["1", "vae_name"]], [], "inner.safetensors"),
        ([["1", "1: vae_name"]], ["host.safetensors"], "host.safetensors"),
        ('[["1", "vae_name"]]', ["host.safetensors"], "host.safetensors"),
        ("[[", ["host.safetensors"], "host.safetensors"),
        ([["99", "vae_name"], "odd", ["1"]], ["host.safetensors", 1, 2], "inner.safetensors"),
    ],
)
def test_the_value_of_an_instance_is_found_in_each_form(
    run: Run, loader: Any, proxies: Any, values: Any, expected: str
) -> None:
    loader["nodes"][1]["widgets_values"] = values
    if proxies is not None:
        loader["nodes"][1]["properties"]["proxyWidgets"] = proxies

    assert inputs(run(loader), "7:1")["vae_name"] == expected
    assert inputs(run(loader, editor="1.45"), "7:1")["vae_name"] == "inner.safetensors"


def test_a_widget_that_no_input_leads_to_may_be_shown_too(run: Run, loader: Any) -> None:
    inner = loader["definitions"]["subgraphs"][0]["nodes"][0]
    inner["inputs"][0]["link"] = None
    loader["nodes"][1]["properties"]["proxyWidgets"] = [["1", "vae_name"]]
    loader["nodes"][1]["widgets_values"] = ["host.safetensors"]
    made = run(loader)

    assert inputs(made, "7:1")["vae_name"] == "host.safetensors"
    assert host_findings(made) == [("7:1", "vae_name")]


def test_a_primitive_outside_reaches_the_widget_inside(run: Run, loader: Any, node: Make) -> None:
    loader["nodes"].append(node(30, "PrimitiveNode", "typed.safetensors", "fixed", outputs=["COMBO"]))
    loader["links"].append([40, 30, 0, 7, 0, "COMBO"])
    loader["nodes"][1]["inputs"][0]["link"] = 40

    assert inputs(run(loader), "7:1")["vae_name"] == "typed.safetensors"


def test_the_value_of_an_outer_instance_goes_all_the_way_in(
    run: Run, loader: Any, node: Make, subgraph: Make
) -> None:
    host = node(7, KEY, inputs={"vae_name": ("COMBO", 1, "w"), "image": ("IMAGE", None)})
    outer = subgraph(OUTER, [host], [[1, -10, 0, 7, 0, "COMBO"]], inputs={"vae_name": "COMBO"})
    loader["definitions"]["subgraphs"].append(outer)
    top = node(3, OUTER, "outermost.safetensors", inputs={"vae_name": ("COMBO", None, "w")})
    made = run({"nodes": [top], "links": [], "definitions": loader["definitions"]})

    assert inputs(made, "3:7:1")["vae_name"] == "outermost.safetensors"
    assert host_findings(made) == [("3:7:1", "vae_name")]


def test_a_bypassed_instance_inside_a_subgraph_is_inactive_too(
    run: Run, loader: Any, node: Make, subgraph: Make
) -> None:
    host = node(7, KEY, mode=4, inputs={"vae_name": ("COMBO", None, "w"), "image": ("IMAGE", None)})
    loader["definitions"]["subgraphs"].append(subgraph(OUTER, [host], []))
    made = run({"nodes": [node(3, OUTER)], "links": [], "definitions": loader["definitions"]})

    assert made.graph == {}
    assert {item.id: item.active for item in made.nodes} == {"3:7:1": False, "3:7:2": False}


def test_definitions_that_nothing_uses_are_told(run: Run, loader: Any) -> None:
    made = run({"nodes": [], "links": [], "definitions": loader["definitions"]})

    assert [(f.code, str(f.severity)) for f in made.findings] == [("unused_subgraph", "info")]
    assert made.nodes == ()


def test_definitions_may_stand_inside_definitions(run: Run, loader: Any, node: Make, subgraph: Make) -> None:
    host = node(7, KEY, inputs={"vae_name": ("COMBO", None, "w"), "image": ("IMAGE", None)})
    outer = subgraph(OUTER, [host], [], definitions=loader["definitions"])
    made = run({"nodes": [node(3, OUTER)], "links": [], "definitions": {"subgraphs": [outer]}})

    assert list(made.graph) == ["3:7:1", "3:7:2"]
