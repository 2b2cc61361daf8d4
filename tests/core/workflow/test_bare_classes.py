"""What of node classes counts for a digest: no file that a server happens to have."""

from typing import Any

import pytest

from comfyfarm.workflow.findings import Refused
from comfyfarm.workflow.folders import FolderMap
from comfyfarm.workflow.schema import NodeSchema


def classes(*files: str) -> dict[str, Any]:
    """A loader of each form that combos have, with these files."""
    listed = [*files, "none"]
    nested = {"key": "k", "inputs": {"required": {"deep": ["COMBO", {"options": listed}]}}}
    first = {"default": files[0]} if files else {}
    return {
        "Own": {
            "input": {
                "required": {
                    "old": [listed, first],
                    "new": ["COMBO", {"options": listed, **first}],
                    "dynamic": ["COMFY_DYNAMICCOMBO_V3", {"options": [nested]}],
                    "text": ["STRING", {"default": "a.b"}],
                },
            },
            "output": [listed, "MODEL"],
        },
        "LoraLoader": {"input": {"required": {"lora_name": [list(files), first]}}, "output": ["MODEL"]},
    }


def schema(raw: dict[str, Any]) -> NodeSchema:
    return NodeSchema.from_object_info(raw, name="s")


def test_model_files_do_not_count_wherever_they_are_offered() -> None:
    assert schema(classes("a.safetensors", "sub/b.GGUF")).sha256 == schema(classes()).sha256
    assert schema(classes("a.safetensors")).offers_sha256 != schema(classes()).offers_sha256


def test_other_options_and_defaults_count() -> None:
    assert schema(classes("euler")).sha256 != schema(classes()).sha256
    changed = classes()
    changed["Own"]["input"]["required"]["text"][1]["default"] = "c.d"
    assert schema(changed).sha256 != schema(classes()).sha256


def test_a_probe_changes_neither_digest() -> None:
    plain = schema(classes("a.safetensors"))
    probed = plain.with_folders(FolderMap.shipped().with_inputs({"Own": {"old": ("loras",)}}))

    assert (probed.sha256, probed.offers_sha256) == (plain.sha256, plain.offers_sha256)


def test_what_is_saved_is_read_as_the_same_with_its_places() -> None:
    folders = FolderMap.shipped().with_inputs(
        {"Own": {"old": ("clip", "loras")}, "LoraLoader": {"lora_name": ("loras",)}}
    )
    probed = schema(classes("a.safetensors")).with_folders(folders)
    saved = probed.to_saved()
    read = schema(saved)

    assert saved["comfyfarm_folders"].keys() == {"Own"}
    assert read.sha256 == probed.sha256
    assert not read.knows("comfyfarm_folders")
    assert read.folders.folders("Own", "old") == probed.folders.folders("Own", "old")
    assert read.to_saved() == saved
    assert "comfyfarm_folders" not in schema(classes()).to_saved()


@pytest.mark.parametrize("places", [3, ["a"], {"Own": 3}, {"Own": {"old": 3}}, {"Own": {"old": [3]}}])
def test_places_that_are_none_are_refused(places: Any) -> None:
    with pytest.raises(Refused, match="comfyfarm_folders"):
        schema(classes() | {"comfyfarm_folders": places})
