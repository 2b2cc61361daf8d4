"""The converter against the real editor: 273 templates, and no model name lost in a thousand others."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from comfyfarm.workflow.schema import NodeSchema
from comfyfarm.workflow.ui.convert import Converted

RENUMBERED = "the editor gives ids that stand in several graphs of the file anew; here stored ids are kept"
SCENE = "the editor draws a 3D scene and queues its own pictures of it"
DEAD = (
    "the editor leaves nodes of a bypassed subgraph inside another one in the graph, where nothing reads them"
)
DIFFERENT = {
    "api_google_nano_banana2_image_edit_continuation.json": RENUMBERED,
    "image_newbieimage_exp0_1-t2i.json": RENUMBERED,
    "video_kandinsky5_i2v.json": RENUMBERED,
    "video_wan2_2_14B_s2v.json": RENUMBERED,
    "api_hunyuan3d_smart_topology.json": SCENE,
    "api_meshy7_1_image_to_model.json": SCENE,
    "flux1_dev_uso_reference_image_gen.json": DEAD,
}
"""Every template that comes out otherwise, and why."""

MODEL = re.compile(
    r"\.(?:safetensors|sft|ckpt|pt|pt2|pth|bin|pkl|gguf|onnx|engine|trt|task|npz|patch)$", re.IGNORECASE
)
NOT_RUN = {"Note", "MarkdownNote", "PrimitiveNode"}
OFF = {2, 4}
SHARED = {("LTXVAudioVAELoader", "ltx-2-19b-dev-fp8.safetensors")}
"""In one blueprint an input of the subgraph leads to two widgets; both get what the first has."""


def meaning(graph: Mapping[str, Any], schema: NodeSchema) -> dict[str, Any]:
    """A graph without what the editor adds at random, and without values that the class has anyway."""
    return {
        key: (node["class_type"], _told(node["class_type"], node["inputs"], schema))
        for key, node in graph.items()
    }


def _told(kind: str, inputs: Mapping[str, Any], schema: NodeSchema) -> dict[str, Any]:
    specs = schema.expanded(kind, inputs)
    return {
        name: value
        for name, value in inputs.items()
        # The player of Load Audio has an address with a random number.
        if (kind, name) != ("LoadAudio", "audioUI")
        and not (name in specs and specs[name].default is not None and specs[name].default == value)
    }


def shape(graph: Mapping[str, Any]) -> list[str]:
    """A graph whatever its ids are: each node with its values and the classes it is linked to."""
    return sorted(
        json.dumps(
            [node["class_type"], {k: _end(v, graph) for k, v in node["inputs"].items()}], sort_keys=True
        )
        for node in graph.values()
    )


def _end(value: Any, graph: Mapping[str, Any]) -> Any:
    return [graph[value[0]]["class_type"], value[1]] if isinstance(value, list) else value


def test_every_template_is_converted_as_the_editor_does_but_for_the_listed(
    gold_graphs: dict[str, Any],
    templates: Mapping[str, Any],
    run: Callable[..., Converted],
    schema: NodeSchema,
) -> None:
    different = {
        name
        for name, expected in gold_graphs.items()
        if meaning(run(templates[name], editor="1.45").graph, schema) != meaning(expected, schema)
    }

    assert different == set(DIFFERENT)
    assert len(gold_graphs) == 273
    assert len(different) <= 0.03 * 273


def test_renumbered_templates_are_the_same_but_for_their_ids(
    gold_graphs: dict[str, Any],
    templates: Mapping[str, Any],
    run: Callable[..., Converted],
) -> None:
    for name in (name for name, why in DIFFERENT.items() if why == RENUMBERED):
        expected = json.loads(json.dumps(gold_graphs[name]))
        for node in expected.values():
            node["inputs"].pop("audioUI", None)

        assert shape(run(templates[name], editor="1.45").graph) == shape(expected), name


def test_titles_are_those_of_the_file_or_of_the_class(
    gold_graphs: dict[str, Any],
    templates: Mapping[str, Any],
    run: Callable[..., Converted],
) -> None:
    pairs = [
        (node["_meta"]["title"], gold_graphs[name][key]["_meta"]["title"])
        for name in gold_graphs
        for key, node in run(templates[name]).graph.items()
        if key in gold_graphs[name]
    ]

    # The rest are names from the editor's own translations, which no schema has.
    assert sum(own == editors for own, editors in pairs) / len(pairs) > 0.93


@pytest.mark.parametrize(
    ("package", "at_least"),
    [("comfyui_workflow_templates_json", 450), ("comfyui_subgraph_blueprints", 110), (None, 460)],
)
def test_no_model_name_is_lost(
    package: str | None,
    at_least: int,
    templates: Mapping[str, Any],
    other_packages: Callable[[str], Iterator[tuple[str, Any]]],
    run: Callable[..., Converted],
) -> None:
    lost: set[tuple[str, str]] = set()
    trees = [tree for _, tree in (other_packages(package) if package else templates.items())]
    for tree in trees:
        made = run(tree, editor="1.45")
        kept = {(n.class_type, name) for n in made.nodes if n.active for name in _models(dict(n.inputs))}
        lost |= set(_written(tree)) - kept
        run_names = {name for n in made.graph.values() for name in _models(n["inputs"])}
        assert {name for _, name in kept} == run_names
    assert lost <= SHARED
    assert len(trees) >= at_least


def _written(tree: Any) -> Iterator[tuple[str, str]]:
    """Class and name of each model on nodes that run, subgraphs as often as they stand there."""
    defined = {item["id"]: item for item in (tree.get("definitions") or {}).get("subgraphs", [])}
    waiting = list(tree["nodes"])
    while waiting:
        node = waiting.pop()
        if node.get("mode") in OFF or node["type"] in NOT_RUN:
            continue
        if node["type"] in defined:
            waiting.extend(defined[node["type"]]["nodes"])
        else:
            yield from ((node["type"], name) for name in _models(node.get("widgets_values")))


def _models(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if MODEL.search(value) and "\n" not in value and len(value) < 300:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _models(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _models(item)


def test_real_files_have_the_nodes_that_a_person_found(
    real_files: dict[str, Any], run: Callable[..., Converted]
) -> None:
    for name, file in real_files.items():
        nodes = {node.id: node for node in run(file["tree"]).nodes}
        for true in [*file["truth"]["model_refs"], *file["truth"]["input_assets"]]:
            node = nodes[true["node"]]
            assert (node.class_type, node.active) == (true["class_type"], true["active"]), name
            assert node.inputs[true["input"]] == true["name"], name
