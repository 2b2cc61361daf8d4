"""One real Prefect server on the embedded PostgreSQL for the whole run, and a farm deployed to it."""

import asyncio
import gc
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from pydantic import SecretStr

from comfyfarm.clock import SystemClock, pause
from comfyfarm.control.launch import use_control
from comfyfarm.control.state import ControlStatus
from deployments.deploy import deploy
from deployments.wanted import Wanted
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

HOST = "test-host"


@pytest.fixture(autouse=True)
def _leave_nothing_to_others() -> Iterator[None]:
    """Prefect's clients leave sockets to the garbage collector: found here, they fail no other test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlStatus]:
    """The control server; this process and its children use its Prefect API."""
    folder = tmp_path_factory.mktemp("control")
    home = folder / "prefect-home"
    kept = dict(os.environ)
    with use_control(folder, with_prefect=True) as control:
        url = str(control.api_url)
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            del os.environ[name]
        os.environ |= {
            "PREFECT_API_URL": url,
            "PREFECT_HOME": str(home),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        with temporary_settings({PREFECT_API_URL: url, PREFECT_HOME: home}):
            try:
                yield control
            finally:
                os.environ.clear()
                os.environ.update(kept)


@dataclass
class Deployed:
    """A farm of two fakes on the Prefect server, and what tests ask of its API."""

    control: ControlStatus
    wanted: Wanted
    fakes: tuple[FakeComfy, ...]
    lines: list[str]

    @property
    def out(self) -> Path:
        return Path(self.wanted.out)

    def get(self, path: str) -> Any:
        answer = httpx.get(f"{self.control.api_url}{path}", timeout=30)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: Any) -> httpx.Response:
        return httpx.post(f"{self.control.api_url}{path}", json=body, timeout=30)

    def find(self, path: str, body: Any) -> list[dict[str, Any]]:
        answer = self.post(path, body)
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()
        return found

    def deployment(self, name: str = "render") -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/deployments/name/render-batch/{name}")
        return found

    def start(self, **parameters: Any) -> httpx.Response:
        return self.post(
            f"/deployments/{self.deployment()['id']}/create_flow_run", {"parameters": parameters}
        )

    def wait_for_end(self, run_id: str, *, timeout_s: float = 100.0) -> dict[str, Any]:
        """The run in its last state."""
        ended = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}

        def look() -> dict[str, Any] | None:
            run: dict[str, Any] = self.get(f"/flow_runs/{run_id}")
            return run if run["state_type"] in ended else None

        found: dict[str, Any] = self.wait_for(look, timeout_s=timeout_s)
        return found

    def wait_for(self, look: Callable[[], Any], *, timeout_s: float = 30.0) -> Any:
        """What `look` returns once it is true; fails after `timeout_s`."""
        clock = SystemClock()
        end = clock.monotonic() + timeout_s
        while not (found := look()):
            assert clock.monotonic() < end, f"waited {timeout_s} s in vain"
            pause(0.2)
        return found


@pytest.fixture(scope="session")
def deployed(prefect_api: ControlStatus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Two fakes, deployed once; tests that need a worker start it."""
    folder = tmp_path_factory.mktemp("farm")
    fakes = (FakeComfy(device="NVIDIA GeForce RTX 4090"), FakeComfy(device="NVIDIA GeForce RTX 4090"))
    with serve(fakes[0].app) as first, serve(fakes[1].app) as second:
        wanted = Wanted(
            host=HOST,
            pool=HOST,
            servers=(first, second),
            ledger=SecretStr(prefect_api.ledger_url),
            out=str(folder / "out"),
            state_dir=folder / "state",
        )
        lines = asyncio.run(deploy(wanted))
        yield Deployed(control=prefect_api, wanted=wanted, fakes=fakes, lines=lines)


@pytest.fixture(scope="session")
def prefect_program() -> str:
    """The `prefect` command of this environment."""
    return str(Path(sys.executable).with_name("prefect"))


@pytest.fixture
def upscaling(tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A workflow with one model, and a lock that says where its file is."""
    data = b"m" * 3_000_000
    (tmp_path / "a.pth").write_bytes(data)
    pinned = {
        "folder": "upscale_models",
        "path": "sub/a.pth",
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "sources": [str(tmp_path / "a.pth")],
    }
    graph = {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "sub/a.pth"}},
        "2": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]},
        },
        "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "up"}},
    }
    return graph, {"version": 1, "models": [pinned]}
