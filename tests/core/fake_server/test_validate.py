"""The fake's validation against what a real one said of odd graphs, and against files that are not there."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fake_server.comfy.folders import ModelFolders
from fake_server.comfy.places import Places
from fake_server.comfy.schema import NodeClasses
from fake_server.comfy.validate import Rejected, Validator

_OBSERVED = Path(__file__).parents[2] / "data" / "odd_graphs" / "observed.json.gz"
CASES: list[dict[str, Any]] = json.loads(gzip.decompress(_OBSERVED.read_bytes()))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(input_dir=tmp_path / "in", output_dir=tmp_path / "out", temp_dir=tmp_path / "temp")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def validator(places: Places, models: Path) -> Validator:
    return Validator(NodeClasses(ModelFolders(models), places), places)


# A list for `inputs` never comes this far: POST /prompt answers 500 to it, as recorded in `bad_bodies`.
@pytest.mark.parametrize(
    "case", [each for each in CASES if each["id"] != "inputs_list"], ids=lambda each: each["id"]
)
def test_an_odd_graph_gets_the_real_verdict(case: dict[str, Any], validator: Validator) -> None:
    try:
        good, node_errors = validator.check(case["graph"])
        verdict: tuple[bool, str | None, int] = (True, None, len(good))
    except Rejected as exc:
        node_errors, verdict = exc.node_errors, (False, exc.error["type"], 0)

    found = [
        [node_id, error["type"], error["extra_info"].get("input_name")]
        for node_id, entry in node_errors.items()
        for error in entry["errors"]
    ]
    assert verdict == (case["valid"], case["err"], case["good"])
    assert sorted(found, key=str) == sorted(case["node_errors"], key=str)


def _checkpoint(name: str) -> dict[str, Any]:
    return {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": name}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }


def test_a_model_is_refused_until_its_file_is_there(validator: Validator, models: Path) -> None:
    with pytest.raises(Rejected) as refused:
        validator.check(_checkpoint("sub/a.safetensors"))

    (error,) = refused.value.node_errors["1"]["errors"]
    assert error["type"] == "value_not_in_list"
    assert error["extra_info"]["received_value"] == "sub/a.safetensors"

    (models / "checkpoints" / "sub").mkdir(parents=True)
    (models / "checkpoints" / "sub" / "a.safetensors").touch()

    assert validator.check(_checkpoint("sub/a.safetensors")) == (["2"], {})


def test_a_long_list_of_models_is_left_out_of_the_error(validator: Validator, models: Path) -> None:
    (models / "checkpoints").mkdir(parents=True)
    for place in range(21):
        (models / "checkpoints" / f"{place}.safetensors").touch()

    with pytest.raises(Rejected) as refused:
        validator.check(_checkpoint("x"))

    (error,) = refused.value.node_errors["1"]["errors"]
    assert error["details"] == "ckpt_name: 'x' not in (list of length 21)"
    assert error["extra_info"]["input_config"] is None


def test_inputs_of_a_chosen_dynamic_combo_are_checked(validator: Validator) -> None:
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "2": {
            "class_type": "SaveImageAdvanced",
            "inputs": {
                "images": ["1", 0],
                "filename_prefix": "x",
                "format": "png",
                "format.bit_depth": "9-bit",
                "format.input_color_space": "sRGB",
            },
        },
    }

    with pytest.raises(Rejected) as refused:
        validator.check(graph)

    (error,) = refused.value.node_errors["2"]["errors"]
    assert (error["type"], error["extra_info"]["input_name"]) == ("value_not_in_list", "format.bit_depth")


def test_links_into_a_growing_input_are_followed(validator: Validator) -> None:
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 0, "height": 8, "batch_size": 1, "color": 0}},
        "2": {"class_type": "BatchImagesNode", "inputs": {"images.image0": ["1", 0]}},
        "3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}},
    }

    with pytest.raises(Rejected) as refused:
        validator.check(graph)

    assert refused.value.node_errors["1"]["errors"][0]["type"] == "value_smaller_than_min"
