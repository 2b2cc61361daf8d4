"""What the flows decide of model files before they ask Prefect."""

import asyncio
import hashlib
from typing import Any
from uuid import UUID

import pytest

from comfyfarm.clock import SystemClock
from comfyfarm.farm.hydration import ModelRow
from comfyfarm.lock.lockfile import Lock, LockedModel
from flows.hydrate_models import in_order
from flows.hydration_limits import mirror_tag
from flows.show_hydration import show_hydration, shown_progress


def test_one_mirror_has_one_tag_as_whomever_it_is_asked() -> None:
    plain = mirror_tag("https://models.example/m")

    assert plain is not None
    assert plain.startswith("mirror:https-models-example-m-")
    assert mirror_tag("https://user:hunter2@models.example/m/") == plain
    assert mirror_tag("https://models.example/m?X-Amz-Signature=hunter2") == plain
    assert mirror_tag("https://models.example/n") != plain


@pytest.mark.parametrize("mirror", [None, "/srv/mirror", "mirror"])
def test_a_folder_needs_no_limit(mirror: str | None) -> None:
    assert mirror_tag(mirror) is None


def lock(*models: tuple[str, str]) -> Lock:
    return Lock(
        models=tuple(
            LockedModel(folder=folder, path=path, size=1, sha256=hashlib.sha256(path.encode()).hexdigest())
            for folder, path in models
        )
    )


def test_the_workflow_says_what_comes_first() -> None:
    graph: dict[str, Any] = {
        "1": {"class_type": "VAELoader", "inputs": {"vae_name": "v.safetensors"}},
        "2": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "u.pth"}},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["2", 0], "image": ["4", 0]},
        },
        "4": {"class_type": "LoadImage", "inputs": {"image": "a.png"}},
        "5": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}},
    }
    locked = lock(("vae", "v.safetensors"), ("upscale_models", "u.pth"))

    assert [one.path for one in in_order(locked, "")] == ["v.safetensors", "u.pth"]
    assert [one.path for one in in_order(locked, graph)] == ["u.pth", "v.safetensors"]


class Stepped(SystemClock):
    """Sleeps until it is told to go on."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.go = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.go.wait()
        self.go.clear()


async def settled() -> None:
    """Whatever can run has run."""
    for _ in range(10):
        await SystemClock().sleep(0)


async def test_progress_is_shown_every_two_seconds_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []

    async def create(progress: float, *, key: str, description: str) -> UUID:
        told.append((key, progress))
        return UUID(int=7)

    async def update(artifact: UUID, progress: float, *, description: str) -> UUID:
        assert artifact == UUID(int=7)
        told.append(("update", progress))
        return artifact

    monkeypatch.setattr("flows.show_hydration.acreate_progress_artifact", create)
    monkeypatch.setattr("flows.show_hydration.aupdate_progress_artifact", update)
    clock = Stepped()
    async with shown_progress("GPU 1", 100, clock=clock) as add:
        await settled()
        for _ in range(30):
            add(1)
            await settled()
        clock.go.set()
        await settled()
        clock.go.set()  # nothing new since
        await settled()
        add(70)

    (key, first), *rest = told
    assert (key.startswith("hydrating-gpu-1"), first) == (True, 0.0)
    assert rest == [("update", 30.0), ("update", 100.0)]
    assert set(clock.slept) == {2.0}


async def test_where_prefect_fails_the_files_come_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_args: Any, **_fields: Any) -> None:
        raise RuntimeError("no API")

    for name in ("acreate_progress_artifact", "acreate_table_artifact"):
        monkeypatch.setattr(f"flows.show_hydration.{name}", broken)

    async with shown_progress("gpu1", 100) as add:
        add(100)
    await show_hydration("gpu1", [ModelRow(title="vae/a", sha256="0" * 64, size=100)])

    assert caplog.text.count("no API") >= 2
