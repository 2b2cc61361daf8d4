"""Folders told from what a server offers."""

import json
from importlib import resources
from typing import Any

from comfyfarm.ids import NodeId
from comfyfarm.workflow.file_node import FileNode
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.input_spec import make_spec
from comfyfarm.workflow.probe import probe
from comfyfarm.workflow.references.find import find_references
from comfyfarm.workflow.schema import NodeSchema, names_a_file

LISTS = {
    "checkpoints": ["a.safetensors", "sub\\b.safetensors"],
    "loras": ["x.safetensors", "y.safetensors"],
    "secret_models": ["s.safetensors"],
    "empty": [],
    "custom_nodes": ["s.safetensors"],
}


def of_class(**inputs: Any) -> dict[str, Any]:
    return {"Own": {"input": {"required": inputs}, "output": []}}


def test_a_combo_that_lists_a_folder_names_its_files() -> None:
    found = probe(
        of_class(
            model=[["None", "s.safetensors"]],
            lora=["COMBO", {"options": ["x.safetensors", "y.safetensors"]}],
            ckpt=[["a.safetensors", "sub/b.safetensors"], {"tooltip": "…"}],
            some=[["x.safetensors"]],
            number=["INT", {"default": 1}],
        ),
        LISTS,
    )

    assert found.folders("Own", "model") == ("secret_models",)
    assert found.folders("Own", "lora") == ("loras",)
    assert found.folders("Own", "ckpt") == ("checkpoints",)
    assert found.folders("Own", "some") == ()
    assert found.folders("Own", "number") == ()


def test_folders_of_the_same_files_are_all_kept_and_the_name_decides() -> None:
    lists = {"other": ["m.safetensors"], "foos": ["m.safetensors"]}

    assert probe(of_class(foo_name=[["m.safetensors"]]), lists).folders("Own", "foo_name") == (
        "foos",
        "other",
    )


def test_a_folder_inside_another_is_left_for_the_fuller_one() -> None:
    lists = {"part": ["m.safetensors"], "whole": ["m.safetensors", "n.safetensors"]}
    combo = [["m.safetensors", "n.safetensors"]]

    assert probe(of_class(name=combo), lists).folders("Own", "name") == ("whole",)


def test_old_keys_come_after_those_of_today() -> None:
    lists = {"unet": ["m.safetensors"], "diffusion_models": ["m.safetensors"], "vae": ["m.safetensors"]}
    raw = {"UNETLoader": {"input": {"required": {"unet_name": [["m.safetensors"]]}}, "output": []}}

    assert probe(raw, lists).folders("UNETLoader", "unet_name")[0] == "diffusion_models"


def test_the_shipped_table_is_found_again_by_probing() -> None:
    """Every folder holds a file of its own: each core loader then tells its folders."""
    shipped = FolderMap.shipped()
    tables = json.loads(resources.files("comfyfarm.workflow").joinpath("folders.json").read_bytes())
    keys = {key for inputs in tables["models"].values() for row in inputs.values() for key in row}
    lists = {key: [f"only-{key}.safetensors"] for key in keys}
    raw = {
        name: {
            "input": {
                "required": {
                    key: [[f"only-{folder}.safetensors" for folder in row]] for key, row in inputs.items()
                }
            }
        }
        for name, inputs in tables["models"].items()
    }
    found = probe(raw, lists)

    for name, inputs in tables["models"].items():
        for key in inputs:
            assert found.folders(name, key)[0] == shipped.folders(name, key)[0], f"{name}.{key}"


def test_a_schema_with_a_probed_map_places_what_the_shipped_one_cannot() -> None:
    raw = of_class(model=[["s.safetensors"]])
    schema = NodeSchema.from_object_info(raw, name="s")
    node = FileNode(NodeId("1"), "Own", {"model": "s.safetensors"})
    probed = schema.with_folders(probe(raw, LISTS))

    assert [u.name for u in find_references([node], schema).unclassified] == ["s.safetensors"]
    assert [r.folder for r in find_references([node], probed).references] == ["secret_models"]
    spec = make_spec("model", raw["Own"]["input"]["required"]["model"], required=True)
    assert not names_a_file("Own", "model", spec)
    assert names_a_file("Own", "model", spec, folders=probed.folders)
    assert schema.sha256 == probed.sha256  # lists of files do not count


def test_odd_answers_tell_nothing() -> None:
    found = probe({"A": None, "B": {"input": 3}, "C": {"input": {"required": {"x": 1, "y": []}}}}, LISTS)

    assert found.of("C").inputs == {}
