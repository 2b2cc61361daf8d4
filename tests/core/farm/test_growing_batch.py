"""A batch that grows by a second call: what earlier jobs still need comes with it."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from comfyfarm.cache.blobs import BlobStore
from comfyfarm.cache.keeper.keeper import Keeper
from comfyfarm.errors import JobConflict
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import examine_all
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import plan_request, record_batch
from comfyfarm.ledger.ledger import open_ledger

Serving = Callable[..., Any]


def request_for(project: Any, word: str, **more: Any) -> RenderRequest:
    """One job of the batch, whose model of this name lies beside it; it is linked for the only server."""
    path = f"{word}.pth"
    size = {"width": 8, "height": 8, "batch_size": 1, "color": 0}
    graph = {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": path}},
        "2": {"class_type": "EmptyImage", "inputs": size},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]},
        },
        "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": word}},
    }
    (project.root / path).write_bytes(word.encode())
    locked = {
        "folder": "upscale_models",
        "path": path,
        "sha256": sha(word),
        "size": len(word),
        "sources": [str(project.root / path)],
    }
    (served,) = project.servers
    fields: dict[str, Any] = {
        "batch": "growing",
        "lock": {"version": 1, "models": [locked]},
        "models_dir": served.fake.models_dir,
        "project": {"policy": {"allow_pickle_sha256": [locked["sha256"]]}},
        **more,
    }
    request: RenderRequest = project.request(project.write(f"{word}.json", graph), **fields)
    return request


def sha(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


async def recorded(project: Any, request: RenderRequest) -> None:
    """A call that ended before anything was rendered."""
    async with await open_ledger(project.ledger_url) as ledger:
        prepared = plan_request(request, read_sources(request), await examine_all(request.servers))
        await record_batch(ledger, request, prepared)


async def test_what_an_earlier_job_needs_is_brought_and_held(
    project: Any, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving()
    await recorded(project, request_for(project, "first"))
    held: list[set[str]] = []
    hold = Keeper.hold

    def noted(keeper: Keeper, models: Any, **more: Any) -> Any:
        if str(more.get("who", "")).startswith("batch"):
            held.append({model.sha256 for model in models})
        return hold(keeper, models, **more)

    monkeypatch.setattr(Keeper, "hold", noted)

    rows = await project.render(request_for(project, "second"))

    assert [row.status for row in rows] == ["succeeded"] * 2
    assert held == [{sha("first"), sha("second")}]


async def test_what_only_finished_jobs_needed_is_not_brought_again(project: Any, serving: Serving) -> None:
    (served,) = [serving()]
    await project.render(request_for(project, "first"))
    blobs = BlobStore(project.root / "cache")
    blobs.path(sha("first")).unlink()
    (served.fake.models_dir / "upscale_models" / "first.pth").unlink()
    (project.root / "first.pth").unlink()

    rows = await project.render(request_for(project, "second"))

    assert [row.status for row in rows] == ["succeeded"] * 2
    assert not blobs.has(sha("first"))


async def test_outputs_that_go_elsewhere_already_are_noticed_before_anything_is_brought(
    project: Any, serving: Serving
) -> None:
    serving()
    await recorded(project, request_for(project, "first"))

    with pytest.raises(JobConflict, match="sends its outputs to"):
        await project.render(request_for(project, "second", out=str(project.root / "elsewhere")))

    assert not BlobStore(project.root / "cache").has(sha("second"))
