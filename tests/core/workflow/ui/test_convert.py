"""UI files as a whole: what runs, what does not, and what is said about it."""

from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.workflow.file_node import PackHint
from comfyfarm.workflow.node import Link
from comfyfarm.workflow.ui.convert import Converted

Run = Callable[..., Converted]
Tricky = Callable[[str], Any]
Make = Callable[..., Any]


def codes(made: Converted) -> list[tuple[str, str, str | None]]:
    """Code, severity and node of each finding."""
    return [(f.code, str(f.severity), f.node) for f in made.findings]


def inputs(made: Converted, node: str) -> dict[str, Any]:
    """The inputs of a node that runs."""
    found: dict[str, Any] = made.graph[node]["inputs"]
    return found


def test_a_plain_file_becomes_the_graph_that_the_editor_queues(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e6_base"))

    assert made.findings == ()
    assert made.graph["5"] == {
        "class_type": "KSampler",
        "_meta": {"title": "KSampler"},
        "inputs": {
            "seed": 1,
            "steps": 20,
            "cfg": 8,
            "sampler_name": "euler",
            "scheduler": "normal",
            "denoise": 1,
            "model": ["2", 0],
            "positive": ["3", 0],
            "negative": ["4", 0],
            "latent_image": ["6", 0],
        },
    }
    assert [node.id for node in made.nodes] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert made.nodes[1].inputs["model"] == Link(made.nodes[0].id, 0)
    assert all(node.active for node in made.nodes)


def test_f1_a_muted_node_is_gone_and_its_consumers_lose_the_input(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e6_muted_lora"))

    assert "2" not in made.graph
    assert "model" not in inputs(made, "5")
    assert [(n.id, n.inputs["lora_name"]) for n in made.nodes if not n.active] == [("2", "l.safetensors")]


def test_f1_a_muted_output_is_gone(run: Run, tricky: Tricky) -> None:
    assert "8" not in run(tricky("e19")).graph


def test_f2_wires_pass_through_a_bypassed_node_by_type(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e7"))

    assert "2" not in made.graph
    assert inputs(made, "5")["model"] == ["1", 0]
    assert inputs(made, "3")["clip"] == ["1", 1]
    assert [n.id for n in made.nodes if not n.active] == ["2"]


@pytest.mark.parametrize("name", ["e5_", "e5b"])
def test_f3_all_inside_a_muted_or_bypassed_instance_is_inactive(run: Run, tricky: Tricky, name: str) -> None:
    made = run(tricky(name))

    inner = [node for node in made.nodes if node.id.startswith("84:")]
    assert len(inner) > 10
    assert not any(node.active for node in inner)
    assert not any(key.startswith("84:") for key in made.graph)
    assert "qwen_image_fp8_e4m3fn.safetensors" in {node.inputs.get("unet_name") for node in inner}


def test_f3_a_bypassed_instance_gives_its_input_on(run: Run, tricky: Tricky) -> None:
    assert inputs(run(tricky("e5b")), "60")["images"] == ["74", 0]


def test_f4_reroute_nodes_are_transparent(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e8"))

    assert {node["class_type"] for node in made.graph.values()}.isdisjoint({"Reroute"})
    assert inputs(made, "4")["clip"] == ["1", 1]
    assert "Reroute" not in {node.class_type for node in made.nodes}


def test_f4_native_reroutes_are_transparent(run: Run, tricky: Tricky) -> None:
    tree = tricky("e6_base")
    tree["extra"] = {"reroutes": [{"id": 1, "linkIds": [10], "pos": [0, 0]}]}
    tree["links"] = [
        {"id": k[0], "origin_id": k[1], "origin_slot": k[2], "target_id": k[3], "target_slot": k[4]}
        | {"type": k[5], "parentId": 1}
        for k in tree["links"]
    ]

    assert run(tree).graph == run(tricky("e6_base")).graph


@pytest.mark.parametrize("mode", [0, 2, 4])
def test_a_primitive_types_its_value_whatever_its_mode(run: Run, tricky: Tricky, mode: int) -> None:
    tree = tricky("e9")
    whole = run(tree).graph
    for node in tree["nodes"]:
        if node["type"] == "PrimitiveNode":
            node["mode"] = mode

    assert any(node["type"] == "PrimitiveNode" for node in tree["nodes"])
    assert run(tree).graph == whole


@pytest.mark.parametrize("node_id", [2**64, 10**199, 1.5, "x" * 200], ids=range(4))
def test_an_odd_id_costs_no_node(run: Run, tricky: Tricky, node_id: Any) -> None:
    tree = tricky("e6_base")
    (last,) = [node for node in tree["nodes"] if node["type"] == "SaveImage"]
    last["id"] = node_id
    for link in tree["links"]:
        link[3] = node_id if link[3] == 8 else link[3]
    made = run(tree)

    assert made.findings == ()
    assert made.graph[str(node_id)]["class_type"] == "SaveImage"


def test_f5_the_value_of_a_linked_primitive_wins(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e9"))

    assert inputs(made, "1")["ckpt_name"] == "prim.safetensors"
    assert "PrimitiveNode" not in {node.class_type for node in made.nodes}


def test_f6_set_and_get_nodes_are_resolved_by_name(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "VAELoader", "ae.safetensors", outputs=["VAE"]),
            node(2, "SetNode", "the vae", inputs={"VAE": ("VAE", 10)}, outputs=["VAE"]),
            node(3, "GetNode", "the vae", outputs=["VAE"], properties={"aux_id": "kijai/ComfyUI-KJNodes"}),
            node(4, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", 11)}),
            node(5, "GetNode", "another", outputs=["VAE"]),
            node(6, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", 12)}),
        ],
        "links": [[10, 1, 0, 2, 0, "VAE"], [11, 3, 0, 4, 1, "VAE"], [12, 5, 0, 6, 1, "VAE"]],
    }
    made = run(tree)

    assert list(made.graph) == ["1", "4", "6"]
    assert inputs(made, "4") == {"vae": ["1", 0]}
    assert inputs(made, "6") == {}
    assert codes(made) == [("unresolved_get_node", "warning", "5")]
    # They are listed for their pack; what they hold is no input of anything.
    listed = next(item for item in made.nodes if item.id == "3")
    assert (dict(listed.inputs), listed.pack) == ({}, PackHint(aux_id="kijai/ComfyUI-KJNodes"))


def test_f6_use_everywhere_is_warned_of(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "VAELoader", "ae.safetensors", outputs=["VAE"]),
            node(2, "Anything Everywhere", inputs={"VAE": ("*", 10)}),
            node(4, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", None)}),
        ],
        "links": [[10, 1, 0, 2, 0, "VAE"]],
    }
    made = run(tree)

    assert list(made.graph) == ["1", "4"]
    assert inputs(made, "4") == {}
    assert codes(made) == [("use_everywhere", "warning", "2")]


def test_f6_links_that_use_everywhere_wrote_down_are_taken(run: Run, node: Make) -> None:
    tree = {
        "nodes": [
            node(1, "VAELoader", "ae.safetensors", outputs=["VAE"]),
            node(2, "Anything Everywhere", inputs={"VAE": ("*", 10)}),
            node(4, "VAEDecode", inputs={"samples": ("LATENT", None), "vae": ("VAE", None)}),
        ],
        "links": [[10, 1, 0, 2, 0, "VAE"]],
        "extra": {
            "ue_links": [
                {"upstream": "1", "upstream_slot": 0, "downstream": 4, "downstream_slot": 1, "type": "VAE"}
            ]
        },
    }
    made = run(tree)

    assert inputs(made, "4") == {"vae": ["1", 0]}
    assert made.findings == ()


def test_f12_links_to_nodes_that_are_gone_are_dropped(run: Run, tricky: Tricky) -> None:
    tree = tricky("e13")
    made = run(tree)

    assert "model" not in inputs(made, "2")
    assert codes(made) == [("dangling_ui_link", "warning", "2")]

    tree["links"].append([99, 3, 0, 4711, 0, "CONDITIONING"])
    assert ("dangling_ui_link", "warning", None) in codes(run(tree))


def test_f13_of_two_nodes_with_one_id_the_second_gets_another(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e10"))

    assert codes(made) == [("duplicate_node_id", "error", "2")]
    assert inputs(made, "2")["lora_name"] == "l.safetensors"
    assert inputs(made, "100")["lora_name"] == "dup.safetensors"
    assert inputs(made, "5")["model"] == ["2", 0]


def test_f15_an_unknown_class_is_kept_with_its_values_and_links(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e11"))

    assert made.graph["2"]["class_type"] == "TotallyUnknownLora"
    assert inputs(made, "2") == {
        "widgets_values": {"__value__": ["l.safetensors", 1, 1]},
        "model": ["1", 0],
        "clip": ["1", 1],
    }
    assert codes(made) == [("unknown_class_kept", "warning", "2")]


def test_f18_a_dynamic_prompt_is_kept_and_warned_of(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e20"))

    assert inputs(made, "3")["text"].startswith("a {red|blue} cat // comment")
    assert codes(made) == [("dynamic_prompt", "warning", "3")]


def test_f19_tokens_of_the_editor_are_kept_and_told(run: Run, tricky: Tricky) -> None:
    made = run(tricky("e21"))

    assert inputs(made, "8")["filename_prefix"] == "%date:yyyy%_%5.seed%"
    assert codes(made) == [("frontend_token", "info", "8")]


def test_f24_an_instance_without_a_definition_is_an_error(run: Run, node: Make) -> None:
    key = "7db92ebb-840a-4c81-927e-6929224c69b5"
    made = run({"nodes": [node(9, key, "a.safetensors")], "links": []})

    assert made.graph == {}
    assert codes(made) == [("missing_subgraph", "error", "9")]
    assert [(item.id, item.active) for item in made.nodes] == [("9", False)]


def test_d5_a_seed_beyond_what_browsers_can_count_stays_exact(run: Run, tricky: Tricky) -> None:
    assert inputs(run(tricky("e18")), "5")["seed"] == 9007199254740993


def test_a_slot_that_does_not_exist_is_left_for_the_check(run: Run, tricky: Tricky) -> None:
    assert inputs(run(tricky("e14")), "2")["model"] == ["1", 7]


def test_b5_links_may_be_rows_and_objects_in_one_file(run: Run, tricky: Tricky) -> None:
    tree = tricky("e6_base")
    first = tree["links"][0]
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    tree["links"][0] = dict(zip(keys, first, strict=True))
    tree |= {"version": 1, "state": {"lastNodeId": 8}}

    assert run(tree).graph == run(tricky("e6_base")).graph


def test_ids_may_be_text(run: Run, tricky: Tricky) -> None:
    assert run(tricky("e22")).graph == run(tricky("e6_base")).graph


def test_lists_are_wrapped_so_that_they_are_no_links(run: Run, node: Make) -> None:
    made = run({"nodes": [node(1, "Odd", ["1", 0], inputs={"a": ("X", None, "w")})], "links": []})

    assert inputs(made, "1") == {"a": {"__value__": ["1", 0]}}


def test_what_is_no_node_is_left_out_and_told(run: Run) -> None:
    made = run({"nodes": [None, {"id": 1}, {"id": True, "type": "KSampler"}], "links": None})

    assert made.graph == {}
    assert codes(made) == [("bad_ui_node", "warning", None)] * 3
