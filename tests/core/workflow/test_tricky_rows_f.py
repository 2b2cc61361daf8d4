"""Rows F of the list of tricky cases: UI files only; see `test_tricky_rows.py`.

`odd` files are those of `tests/data/ui`: what was made to try the real editors.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comfyfarm.workflow.file_node import Editor
from comfyfarm.workflow.packs.index import PackIndex, grouped, unique_repos
from comfyfarm.workflow.preflight import PackRules
from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import convert

Look = Callable[..., Any]
Odd = Callable[[str], dict[str, Any]]
Inputs = Callable[..., dict[str, Any]]
ONE, TWO = ("aaaaaaaa-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000000")
HOST = "https://github.com/"


@pytest.fixture(scope="session")
def odd(data_dir: Path) -> Odd:
    files = json.loads(gzip.decompress((data_dir / "ui" / "tricky.json.gz").read_bytes()))
    return lambda start: next(tree for name, tree in files.items() if name.startswith(start))


@pytest.fixture(scope="session")
def inputs(schema: NodeSchema) -> Inputs:
    """The inputs of one node of the converted graph."""

    def of(tree: dict[str, Any], node_id: str, editor: Editor = "1.58") -> dict[str, Any]:
        found: dict[str, Any] = convert(tree, schema, editor=editor).graph[node_id]["inputs"]
        return found

    return of


def node(node_id: int, kind: str, *values: Any, **more: Any) -> dict[str, Any]:
    """A node; `takes` is name → (type, link), `gives` a list of types."""
    takes, gives = more.pop("takes", {}), more.pop("gives", ())
    return {
        "id": node_id,
        "type": kind,
        "inputs": [{"name": name, "type": spec[0], "link": spec[1]} for name, spec in takes.items()],
        "outputs": [{"name": one, "type": one, "links": []} for one in gives],
        "widgets_values": list(values),
        **more,
    }


def tree(*nodes: dict[str, Any], links: Any = (), **more: Any) -> dict[str, Any]:
    """A file with a picture that is saved, and these nodes."""
    source = node(101, "EmptyImage", 64, 64, 1, 0, gives=["IMAGE"])
    sink = node(102, "SaveImage", "t", takes={"images": ("IMAGE", 100)})
    return {"nodes": [source, sink, *nodes], "links": [[100, 101, 0, 102, 0, "IMAGE"], *links], **more}


def subgraph(key: str, *nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    ends = {"inputNode": {"id": -10}, "outputNode": {"id": -20}, "inputs": [], "outputs": []}
    return {"id": key, "name": "sub", "nodes": list(nodes), "links": [], **ends, **more}


def saved_with(*packs: tuple[str, dict[str, str]]) -> dict[str, Any]:
    return tree(*(node(n, kind, properties=hint) for n, (kind, hint) in enumerate(packs, start=1)))


def known(claims: dict[str, list[str]], ids: dict[str, str] | None = None) -> PackRules:
    """What a class map says: classes by repository, repositories by id."""
    named = {key: HOST + repo for key, repo in (ids or {}).items()}
    return PackRules(
        index=PackIndex(
            classes=grouped((kind, HOST + repo) for repo, kinds in claims.items() for kind in kinds),
            ids=grouped(named.items()),
            repos=unique_repos([*named.values(), *(HOST + repo for repo in claims)]),
        )
    )


def test_f1_a_muted_node_is_gone_and_who_needs_it_fails(look: Look, odd: Odd) -> None:
    seen = look(odd("e6_muted"))

    assert "2.lora_name loras/l.safetensors file off" in seen.models
    assert {"E missing_input 5.model", "E missing_input 3.clip"} <= seen.says_where
    assert look(tree(node(5, "LoadImage", "a.png", mode=2))).assets == ["5.image input/a.png input off"]


def test_f2_a_bypassed_node_passes_its_wires_on(look: Look, odd: Odd, inputs: Inputs) -> None:
    seen = look(odd("e7"))

    assert "2.lora_name loras/l.safetensors file off" in seen.models
    assert seen.says == {"I ui_format"}
    assert (inputs(odd("e7"), "5")["model"], inputs(odd("e7"), "3")["clip"]) == (["1", 0], ["1", 1])


@pytest.mark.parametrize("name", ["e5_", "e5b"])
def test_f3_all_inside_a_muted_or_bypassed_subgraph_is_inactive(look: Look, odd: Odd, name: str) -> None:
    seen = look(odd(name))

    assert len(seen.models) == 5
    assert all(one.startswith("84:") and one.endswith(" off") for one in seen.models)
    assert not any(one.startswith("84:") for one in convert(odd(name), NodeSchema.shipped()).graph)


def test_f4_reroutes_of_both_kinds_are_transparent(look: Look, odd: Odd, inputs: Inputs) -> None:
    native = tree(
        extra={"reroutes": [{"id": 1, "linkIds": [100]}], "linkExtensions": [{"id": 100, "parentId": 1}]}
    )
    wire = {"id": 100, "origin_id": 101, "origin_slot": 0, "target_id": 102, "target_slot": 0, "parentId": 1}
    newer = {**tree(), "version": 1, "links": [wire], "reroutes": [{"id": 1, "linkIds": [100]}]}

    assert look(odd("e8")).says == look(native).says == look(newer).says == {"I ui_format"}
    assert inputs(native, "102")["images"] == inputs(newer, "102")["images"] == ["101", 0]
    assert "Reroute" not in look(odd("e8")).report.classes.values()


def test_f5_a_primitive_gives_the_value(look: Look, odd: Odd, inputs: Inputs) -> None:
    assert "1.ckpt_name checkpoints/prim.safetensors file" in look(odd("e9")).models
    assert len([one for one in look(odd("e9")).models if "checkpoints" in one]) == 1
    assert inputs(odd("e9"), "1")["ckpt_name"] == "prim.safetensors"


def test_f6_links_that_only_a_pack_makes_are_resolved_or_told(look: Look, inputs: Inputs) -> None:
    def wired(name: str) -> dict[str, Any]:
        give = node(1, "SetNode", "a", takes={"IMAGE": ("IMAGE", 1)}, gives=["IMAGE"])
        get = node(2, "GetNode", name, gives=["IMAGE"])
        invert = node(3, "PreviewImage", takes={"images": ("IMAGE", 2)})
        return tree(give, get, invert, links=[[1, 101, 0, 1, 0, "IMAGE"], [2, 2, 0, 3, 0, "IMAGE"]])

    everywhere = node(1, "Anything Everywhere", takes={"IMAGE": ("IMAGE", 1)})

    assert inputs(wired("a"), "3")["images"] == ["101", 0]
    assert look(wired("a")).says == {"I ui_format"}
    assert "W unresolved_get_node 2.None" in look(wired("b")).says_where
    told = look(tree(everywhere, links=[[1, 101, 0, 1, 0, "IMAGE"]]))
    assert "W use_everywhere 1.None" in told.says_where


@pytest.mark.parametrize(
    ("name", "where", "host", "inner"),
    [
        ("e1_", "13:2.unet_name", "CHANGED_UNET.safetensors", "z_image_turbo_bf16.safetensors"),
        ("e3_", "84:39.vae_name", "CH_VAE.safetensors", "qwen_image_vae.safetensors"),
        ("e24", "188:29.vae_name", "INST_Wan2_1_VAE_bf16.safetensors", "Wan2_1_VAE_bf16.safetensors"),
        ("e27", "19:1.ckpt_name", "INST_h.safetensors", "hunyuan_3d_v2.1.safetensors"),
    ],
)
def test_f7_where_editors_disagree_both_values_are_references(
    look: Look, odd: Odd, inputs: Inputs, name: str, where: str, host: str, inner: str
) -> None:
    node_id, _, field = where.rpartition(".")

    assert inputs(odd(name), node_id)[field] == host
    assert inputs(odd(name), node_id, "1.45")[field] == inner
    for editor in ("1.58", "1.45"):
        seen = look(odd(name), editor=editor)
        assert f"W host_vs_inner {where}" in seen.says_where
        found = {
            r.name for r in seen.report.references if (r.node, r.input, r.active) == (node_id, field, True)
        }
        assert found == {host, inner}


def test_f8_two_instances_of_one_definition_are_two_sets(look: Look, odd: Odd) -> None:
    inner = node(39, "VAELoader", "x.safetensors", takes={"vae_name": ("COMBO", 7)})
    inner["inputs"][0]["widget"] = {"name": "vae_name"}
    link = {"id": 7, "origin_id": -10, "origin_slot": 0, "target_id": 39, "target_slot": 0}
    entry = [{"name": "vae_name", "type": "COMBO", "linkIds": [7]}]
    definition = subgraph(ONE, inner, links=[link], inputs=entry)
    proxies = {"proxyWidgets": [["-1", "vae_name"]]}
    hosts = [node(at, ONE, f"{at}.safetensors", properties=proxies) for at in (84, 984)]
    seen = look(tree(*hosts, definitions={"subgraphs": [definition]}))

    assert {"84:39.vae_name vae/84.safetensors file", "984:39.vae_name vae/984.safetensors file"} <= set(
        seen.models
    )
    assert {r.node for r in look(odd("e4")).report.references} >= {"84:39", "984:39"}


def test_f9_ids_inside_nested_subgraphs_are_paths(look: Look, odd: Odd) -> None:
    assert "13:76:10.unet_name diffusion_models/lotus-depth-d-v1-1.safetensors file" in look(odd("e0")).models


def test_f10_an_unused_definition_is_ignored_and_one_in_itself_an_error(look: Look) -> None:
    unused = look(tree(definitions={"subgraphs": [subgraph(ONE, node(1, "VAELoader", "x.safetensors"))]}))
    circle = [subgraph(ONE, node(1, TWO)), subgraph(TWO, node(1, ONE))]
    cyclic = look(tree(node(5, ONE), definitions={"subgraphs": circle}))

    assert unused.says == {"I ui_format", "I unused_subgraph"}
    assert unused.models == []
    assert cyclic.says == {"I ui_format", "E subgraph_cycle"}


def test_f11_the_instance_of_a_group_node_decides_and_templates_are_noise(look: Look) -> None:
    def template(name: str) -> dict[str, Any]:
        return {"nodes": [{"type": "VAELoader", "index": 0, "widgets_values": [name]}], "links": []}

    groups = {"My": template("X.safetensors"), "Stale": template("Z.safetensors")}
    seen = look(tree(node(5, "workflow>My", "Y.safetensors"), extra={"groupNodes": groups}))

    assert seen.models == ["5:0.vae_name vae/Y.safetensors file"]


def test_f12_links_to_what_is_gone_are_dropped_with_a_warning(look: Look, odd: Odd) -> None:
    row = look(tree(links=[[7, 101, 0, 77, 0, "IMAGE"]]))

    assert row.says == {"I ui_format", "W dangling_ui_link"}
    assert "W dangling_ui_link 2.model" in look(odd("e13")).says_where


def test_f13_two_nodes_with_one_id_are_an_error_and_both_kept(look: Look, odd: Odd) -> None:
    seen = look(odd("e10"))

    assert "E duplicate_node_id 2.None" in seen.says_where
    assert {"loras/l.safetensors", "loras/dup.safetensors"} <= {one.split()[1] for one in seen.models}


@pytest.mark.parametrize(
    "values",
    [
        [7, True, 20, 8, "euler", "normal", 1],
        [7, 20, 8, "euler", "normal", 1],
        [7, "fixed", 20, 8, "euler", "normal", 1],
    ],
)
def test_f14_old_orders_of_values_are_mapped_by_type(inputs: Inputs, values: list[Any]) -> None:
    assert inputs(tree(node(5, "KSampler", *values)), "5") == {
        "seed": 7,
        "steps": 20,
        "cfg": 8,
        "sampler_name": "euler",
        "scheduler": "normal",
        "denoise": 1,
    }


def test_f15_a_node_of_an_unknown_class_is_kept_with_its_texts(look: Look, odd: Odd, inputs: Inputs) -> None:
    seen = look(odd("e11"))

    assert {"E unknown_class 2.class_type", "W unknown_class_kept 2.None"} <= seen.says_where
    assert [u.name for u in seen.report.unclassified] == ["l.safetensors"]
    assert "l.safetensors" in json.dumps(inputs(odd("e11"), "2"))


def test_f16_the_value_of_a_widget_with_an_empty_socket_counts(look: Look, inputs: Inputs) -> None:
    loader = node(3, "VAELoader", "ae.safetensors", takes={"vae_name": ("COMBO", None)}, gives=["VAE"])
    loader["inputs"][0]["widget"] = {"name": "vae_name"}

    assert look(tree(loader)).models == ["3.vae_name vae/ae.safetensors file"]
    assert inputs(tree(loader), "3") == {"vae_name": "ae.safetensors"}


def test_f17_parts_of_dynamic_inputs_have_dotted_names(inputs: Inputs) -> None:
    resize = node(
        3, "ResizeImageMaskNode", "scale longer dimension", 512, "lanczos", takes={"input": ("IMAGE", 1)}
    )
    batch = node(4, "BatchImagesNode", takes={"images.image0": ("IMAGE", 2), "images.image1": ("IMAGE", 3)})
    links = [[n, 101, 0, target, slot, "IMAGE"] for n, target, slot in ((1, 3, 0), (2, 4, 0), (3, 4, 1))]
    made = tree(resize, batch, links=links)

    assert inputs(made, "3")["resize_type.longer_size"] == 512
    assert inputs(made, "4") == {"images.image0": ["101", 0], "images.image1": ["101", 0]}


def test_f18_a_choice_in_a_text_is_told_and_all_of_it_is_looked_at(look: Look, odd: Odd) -> None:
    seen = look(tree(node(3, "CLIPTextEncode", "a {embedding:red|embedding:blue} // x")))

    assert "W dynamic_prompt 3.text" in seen.says_where
    assert seen.models == ["3.text embeddings/red embedding", "3.text embeddings/blue embedding"]
    assert "W dynamic_prompt" in look(odd("e20")).says


def test_f19_a_token_that_the_editor_replaces_is_told(look: Look, odd: Odd) -> None:
    assert "I frontend_token 8.filename_prefix" in look(odd("e21")).says_where


def test_f20_one_pack_of_several_versions_and_spellings_is_one(look: Look) -> None:
    hints = [
        ("ComfyUI-GGUF", "a" * 40),
        ("comfyui-gguf", "b" * 40),
        ("comfyui-gguf", "1.0.5"),
        ("ComfyUI-GGUF", "nightly"),
    ]
    file = saved_with(*((f"Gguf{n}", {"cnr_id": name, "ver": ver}) for n, (name, ver) in enumerate(hints)))
    seen = look(file, packs=known({}, {"comfyui-gguf": "city96/ComfyUI-GGUF"}))

    assert {url for url, *_ in seen.packs.values()} == {HOST + "city96/ComfyUI-GGUF"}
    assert len({commit for _, commit, _ in seen.packs.values()}) == 1
    assert [f.severity.value for f in seen.report.findings if f.code == "pack_versions"] == ["warning"]


@pytest.mark.parametrize(
    ("ver", "commit"),
    [("a" * 40, "a" * 40), ("nightly", None), ("unknown", None), ("1a2b3c4", None), ("1.2.3", None)],
)
def test_f21_only_forty_hex_digits_are_a_commit(look: Look, ver: str, commit: str | None) -> None:
    seen = look(saved_with(("Odd", {"aux_id": "a/b", "ver": ver})))

    assert seen.packs["Odd"] == (HOST + "a/b", commit, "aux_id")
    assert ("W pack_not_pinned" in seen.says) == (commit is None)


def test_f22_a_class_of_several_packs_is_an_error_until_something_decides(look: Look) -> None:
    rules = known({"a/pulid": ["PulidFluxModelLoader", "Other"], "b/pulid": ["PulidFluxModelLoader"]})
    alone = look(saved_with(("PulidFluxModelLoader", {})), packs=rules)
    told = look(saved_with(("PulidFluxModelLoader", {"aux_id": "balazik/ComfyUI-PuLID-Flux"})), packs=rules)
    sibling = look(saved_with(("PulidFluxModelLoader", {}), ("Other", {})), packs=rules)

    assert "E ambiguous_pack 1.class_type" in alone.says_where
    assert alone.packs["PulidFluxModelLoader"] == (None, None, None)
    assert told.packs["PulidFluxModelLoader"][0] == HOST + "balazik/ComfyUI-PuLID-Flux"
    assert sibling.packs["PulidFluxModelLoader"] == (HOST + "a/pulid", None, "siblings")
    assert "E ambiguous_pack" not in told.says | sibling.says


def test_f23_core_classes_and_the_editors_own_have_no_pack(look: Look) -> None:
    claimed = ["PrimitiveNode", "Reroute", "MarkdownNote", "EmptyImage", "SaveImage"]
    nodes = [node(n, kind) for n, kind in enumerate(claimed[:3], start=1)]
    seen = look(tree(*nodes), packs=known({"a/stranger": claimed}))

    assert (seen.packs, seen.says) == ({}, {"I ui_format"})


def test_f24_an_instance_without_its_definition_is_an_error(look: Look) -> None:
    seen = look(tree(node(5, ONE)))

    assert seen.says_where == {"I ui_format None.None", "E missing_subgraph 5.None"}
    assert seen.packs == {}
    assert "W missing_subgraph" in look(tree(node(5, ONE, mode=2))).says
