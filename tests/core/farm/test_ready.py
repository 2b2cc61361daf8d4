"""What a project's policy does not let in is not rendered."""

import hashlib
import json
from typing import Any

import pytest

from comfyfarm.errors import WorkflowError
from comfyfarm.farm.request import RenderRequest
from comfyfarm.lock.project_file import ProjectFile, project_of, read_project_file

UPSCALING = {
    "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "m.pth"}},
    "2": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
    "3": {"class_type": "ImageUpscaleWithModel", "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]}},
    "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "p"}},
}


def project_file(text: str) -> ProjectFile:
    return read_project_file(text.encode(), name="comfyfarm.toml")


def upscaling(place: Any, **more: Any) -> RenderRequest:
    data = b"weights"
    models = place.root / "models"
    (models / "upscale_models").mkdir(parents=True)
    (models / "upscale_models" / "m.pth").write_bytes(data)
    locked = {"folder": "upscale_models", "path": "m.pth", "sha256": hashlib.sha256(data).hexdigest(),
              "size": len(data)}  # fmt: skip
    lock = {"version": 1, "models": [locked]}
    request: RenderRequest = place.request(place.write("w.json", UPSCALING), lock=lock, **more)
    return request


async def test_a_class_that_is_not_allowed_is_not_rendered(project: Any, serving: Any, graph: Any) -> None:
    served = serving()
    rules = project_file('[policy]\nallow_classes = ["EmptyImage"]')

    with pytest.raises(WorkflowError, match="does not allow the class 'SaveImage'"):
        await project.render(project.request(project.write("w.json", graph()), project=rules))

    assert served.prompts == []


async def test_a_pickled_file_is_refused_unless_its_content_is_allowed(project: Any, serving: Any) -> None:
    served = serving(models_dir=project.root / "models")
    request = upscaling(project, project=project_file("[policy]\nallow_pickle_sha256 = []"))

    with pytest.raises(WorkflowError, match=r"upscale_models/m\.pth is a pickled file"):
        await project.render(request)

    assert served.prompts == []
    allowed = project_file(f'[policy]\nallow_pickle_sha256 = ["{hashlib.sha256(b"weights").hexdigest()}"]')
    (row,) = await project.render(request.model_copy(update={"project": allowed}))
    assert row.status == "succeeded"


def test_a_project_file_survives_the_way_to_the_flow() -> None:
    rules = project_file('[packs]\n"A" = "https://h/u/a"\n[policy]\nallow_packs = ["a"]\nallow_classes = []')
    text = json.dumps(rules.model_dump(mode="json", exclude_none=True))

    assert project_of(json.loads(text), name="project") == rules
    assert project_of({}, name="project") == ProjectFile()
