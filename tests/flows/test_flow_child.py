"""The flow as the command's child process: what it is told of, and what it hears."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from comfyfarm.cli.flow_child import run_flow
from comfyfarm.control.state import ControlStatus
from comfyfarm.farm.ledgers import Backends
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.servers import host_slug
from comfyfarm.farm.stopping import Stop
from comfyfarm.settings import FarmSettings, read_settings
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(120)]


@pytest.fixture
def settings(tmp_path: Path) -> FarmSettings:
    return read_settings(
        {"COMFYFARM_STATE_DIR": str(tmp_path / "state"), "COMFYFARM_CACHE_DIR": str(tmp_path / "cache")}
    )


async def test_a_flow_that_breaks_is_to_be_tried_later_and_not_the_workflows_fault(
    tmp_path: Path, settings: FarmSettings
) -> None:
    async def healthy(_request: web.Request) -> web.Response:
        return web.json_response(True)

    prefect = web.Application()  # every other route answers 404
    prefect.router.add_get("/api/health", healthy)
    with serve(FakeComfy().app) as url, serve(prefect) as broken:
        request = RenderRequest(
            workflow={"1": {"class_type": "EmptyImage", "inputs": {}}},
            out=str(tmp_path / "out"),
            servers=(url,),
            batch="broken",
            cache_dir=tmp_path / "cache",
            host=host_slug(),
        )
        ledger = SecretStr(f"sqlite:///{tmp_path / 'ledger.db'}")
        backends = Backends(ledger_url=ledger, prefect_api_url=f"{broken}/api")

        code = await run_flow(
            request, backends, settings, stop=Stop(), verbose=False, on_bytes=lambda *_: None
        )

    assert code == 3


async def test_a_password_in_a_servers_address_never_gets_to_prefect(
    tmp_path: Path, settings: FarmSettings, capfd: pytest.CaptureFixture[str]
) -> None:
    request = RenderRequest(
        workflow={"1": {"class_type": "EmptyImage", "inputs": {}}},
        out=str(tmp_path / "out"),
        servers=("http://me:hunter2@127.0.0.1:1",),
        batch="secret",
        cache_dir=tmp_path / "cache",
        host=host_slug(),
    )
    ledger = SecretStr(f"sqlite:///{tmp_path / 'ledger.db'}")
    backends = Backends(ledger_url=ledger, prefect_api_url="http://127.0.0.1:1/api")

    code = await run_flow(request, backends, settings, stop=Stop(), verbose=True, on_bytes=lambda *_: None)

    told = capfd.readouterr().err
    assert code == 2
    assert "COMFYFARM_SERVER_AUTH" in told
    assert "hunter2" not in told


async def test_the_command_hears_how_many_bytes_of_the_models_have_come(
    prefect_api: ControlStatus,
    settings: FarmSettings,
    tmp_path: Path,
    upscaling: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    graph, lock = upscaling
    told: list[tuple[Any, ...]] = []
    with serve(FakeComfy(models_dir=tmp_path / "models").app) as url:
        request = RenderRequest(
            workflow=graph,
            lock=lock,
            out=str(tmp_path / "out"),
            servers=(url,),
            batch="heard",
            cache_dir=tmp_path / "cache",
            models_dir=tmp_path / "models",
            host=host_slug(),
        )
        backends = Backends(ledger_url=SecretStr(prefect_api.ledger_url), prefect_api_url=prefect_api.api_url)

        code = await run_flow(
            request,
            backends,
            settings,
            stop=Stop(),
            verbose=True,
            on_bytes=lambda *both: told.append(both),
        )

    assert code == 0
    assert told[-1] == (3_000_000, 3_000_000, [])  # no file is under way any more
    assert (tmp_path / "models" / "upscale_models" / "sub" / "a.pth").stat().st_size == 3_000_000
    assert len(list((tmp_path / "out").rglob("*.png"))) == 1
