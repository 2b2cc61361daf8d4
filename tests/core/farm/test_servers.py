"""How servers are, what they are called, and which of them can have the work."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from comfyfarm.comfy.wire import Device
from comfyfarm.errors import (
    NamesMissing,
    ServerError,
    ServerUnreachable,
    TryLater,
    UsageError,
    WorkflowError,
)
from comfyfarm.farm.servers import (
    eligible,
    examine,
    examine_all,
    health,
    host_of,
    host_slug,
    model_slug,
    suited,
)
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.references.find import Reference, find_references
from comfyfarm.workflow.schema import NodeSchema
from fake_server.comfy import FakeComfy
from fake_server.serve import serve

Serving = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "kind", "slug"),
    [
        ("cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync", "cuda", "rtx4090"),
        ("cuda:1 NVIDIA GeForce RTX 4070 Ti SUPER : native", "cuda", "rtx4070-ti-super"),
        ("cuda:0 NVIDIA A100-SXM4-80GB : native", "cuda", "a100-sxm4-80gb"),
        ("cuda:0 NVIDIA H100 80GB HBM3 : cudaMallocAsync", "cuda", "h100-80gb-hbm3"),
        ("cuda:0 NVIDIA L40S : native", "cuda", "l40s"),
        ("cuda:0 Tesla T4 : native", "cuda", "t4"),
        ("cuda:0 AMD Radeon RX 7900 XTX : native", "cuda", "rx7900-xtx"),
        ("mps", "mps", "mps"),
        ("cpu", "cpu", "cpu"),
        ("cuda:0 NVIDIA : native", "cuda", "gpu"),
    ],
)
def test_a_gpu_has_the_slug_of_its_model(name: str, kind: str, slug: str) -> None:
    assert model_slug(Device(name=name, type=kind)) == slug


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://gpu-box.example:8188", "gpu-box-example"),
        ("https://GPU-box.example", "gpu-box-example"),
        ("http://me:secret@10.0.0.7:8188/sub", "10-0-0-7"),
    ],
)
def test_a_server_belongs_to_the_host_that_its_address_names(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize("name", ["127.0.0.1", "127.8.9.1", "localhost", "[::1]"])
def test_loopback_is_this_machine_by_its_own_name(name: str) -> None:
    assert host_of(f"http://{name}:8188") == host_slug()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8188", "ftp://h:1", "http://", "http://h:0", "http://[bad", "http://h:x"]
)
def test_what_is_no_address_is_said_before_anything_is_asked(url: str) -> None:
    with pytest.raises(UsageError, match="no address of a server"):
        host_of(url)


def test_a_host_has_a_slug() -> None:
    assert host_slug("GPU-Box_01.example") == "gpu-box-01-example"
    assert host_slug("---") == "host"
    assert host_slug()


async def test_a_good_server_is_healthy(serving: Serving) -> None:
    found = await health(serving(busy=2, prompt_seconds=5).url)

    assert found.is_healthy
    assert found.stats is not None
    assert found.running + found.pending == 2


async def test_a_server_that_is_down_says_why() -> None:
    found = await health("http://127.0.0.1:1")

    assert not found.is_healthy
    assert "did not answer" in found.fault


def queue_server(queues: list[dict[str, Any]]) -> web.Application:
    """Gives one queue after the other, then the last for ever."""

    async def queue(_request: web.Request) -> web.Response:
        return web.json_response(queues.pop(0) if len(queues) > 1 else queues[0])

    async def stats(_request: web.Request) -> web.Response:
        return web.json_response({"system": {"comfyui_version": "0.27.0"}, "devices": []})

    app = web.Application()
    app.add_routes([web.get("/queue", queue), web.get("/system_stats", stats)])
    return app


async def test_a_dead_worker_is_seen_although_http_answers() -> None:
    with serve(queue_server([{"queue_running": [], "queue_pending": [[0, "a"]]}])) as url:
        found = await health(url)

    assert not found.is_healthy
    assert "its worker is dead" in found.fault


async def test_a_prompt_that_is_just_going_to_start_is_no_dead_worker() -> None:
    waiting = {"queue_running": [], "queue_pending": [[0, "a"]]}
    begun = {"queue_running": [[0, "a"]], "queue_pending": []}
    with serve(queue_server([waiting, begun])) as url:
        found = await health(url)

    assert found.is_healthy
    assert (found.running, found.pending) == (1, 0)


async def test_a_server_that_is_no_comfyui_is_unhealthy() -> None:
    with serve(web.Application()) as url:
        found = await health(url)
        with pytest.raises(ServerError):
            await examine(url)

    assert "answered what ComfyUI would not" in found.fault


async def test_a_server_is_examined(serving: Serving) -> None:
    found = await examine(serving(device="NVIDIA GeForce RTX 4090").url + "/")

    assert found.version == "0.27.0"
    assert not found.url.endswith("/")
    assert found.identity
    assert found.node_schema.live
    assert found.host == host_slug()
    assert found.record().model == "rtx4090"
    assert found.record().host == host_slug()


async def test_servers_of_one_host_all_carry_its_name(serving: Serving) -> None:
    urls = [serving().url, serving().url.replace("127.0.0.1", "localhost")]

    assert [one.host for one in await examine_all(urls, "gpu1")] == ["gpu1", "gpu1"]


async def test_one_that_answers_is_enough(serving: Serving) -> None:
    served = serving()
    found = await examine_all(["http://127.0.0.1:1", served.url, served.url])

    assert [one.url for one in found] == [served.url]
    with pytest.raises(ServerUnreachable):
        await examine_all(["http://127.0.0.1:1"])
    with pytest.raises(UsageError, match="--server"):
        await examine_all([])


def answering(status: int, text: str) -> web.Application:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    return app


@pytest.mark.parametrize(
    ("status", "text"),
    [(200, "<html>Welcome to nginx!</html>"), (404, "no such page"), (401, "who are you?")],
)
async def test_another_program_at_the_address_is_wrong_usage_and_its_answer_is_told(
    status: int, text: str
) -> None:
    with serve(answering(status, text)) as url, pytest.raises(UsageError) as caught:
        await examine_all([url])

    told = str(caught.value)
    assert url in told
    assert f"answered {status} {text!r}" in told
    assert "did not answer" not in told


async def test_a_server_in_trouble_for_a_moment_is_not_left_out() -> None:
    fake = FakeComfy(script={"now": ["503:1"]})
    with serve(fake.app) as url:
        (found,) = await examine_all([url])
    fake.clean_up()

    assert found.url == url


async def test_nothing_at_the_address_may_be_there_later() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        await examine_all(["http://127.0.0.1:1"])

    assert str(caught.value).count("did not answer") == 1


async def test_a_proxy_without_a_server_behind_it_may_have_one_later() -> None:
    told = "answered 502 'Bad Gateway'"
    with serve(answering(502, "Bad Gateway")) as url, pytest.raises(TryLater, match=told):
        await examine_all([url])


async def test_while_one_address_may_work_later_the_call_may_succeed_later(serving: Serving) -> None:
    with serve(answering(200, "<html>")) as url:
        with pytest.raises(TryLater) as caught:
            await examine_all([url, "http://127.0.0.1:1"])
        assert url in str(caught.value)
        assert "http://127.0.0.1:1" in str(caught.value)

        served = serving()
        assert [one.url for one in await examine_all([url, served.url])] == [served.url]


async def test_a_server_on_which_the_workflow_cannot_run_is_left_out_with_the_reason(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    (server,) = await examine_all([serving().url])
    small = NodeSchema.from_object_info({"Mine": {"input": {}}}, name="h")
    other = server.model_copy(update={"url": "http://h:1", "node_schema": small})
    unfit = {other.node_schema.offers_sha256: "w.json: node 3: no such class"}

    assert suited([server, other], unfit) == (server,)
    assert "http://h:1: w.json: node 3: no such class" in caplog.text
    with pytest.raises(WorkflowError, match="no such class"):
        suited([other], unfit)


async def test_garbage_for_a_schema_leaves_a_server_out(serving: Serving) -> None:
    async def garbage(request: web.Request) -> web.Response:
        if request.path == "/system_stats":
            return web.json_response({"system": {}, "devices": []})
        return web.Response(body=b"<html>")

    app = web.Application()
    app.router.add_get("/{tail:.*}", garbage)
    with serve(app) as url:
        served = serving()

        assert [one.url for one in await examine_all([url, served.url])] == [served.url]


async def references(graph: dict[str, Any], url: str) -> tuple[Reference, ...]:
    schema = (await examine(url)).node_schema
    return find_references(read_workflow(json.dumps(graph).encode(), name="w"), schema).references


async def test_only_servers_with_every_name_are_eligible(serving: Serving) -> None:
    full, empty = serving(), serving()
    graph = {
        str(n): {"class_type": "UpscaleModelLoader", "inputs": {"model_name": f"{n}.pth"}} for n in range(2)
    }
    graph["9"] = {"class_type": "PreviewAny", "inputs": {"source": ["0", 0]}}
    folder = full.fake.models_dir / "upscale_models"
    folder.mkdir(parents=True)
    for n in range(2):
        (folder / f"{n}.pth").write_bytes(b"x")
    servers = await examine_all([full.url, empty.url])
    needed = await references(graph, full.url)

    assert [one.url for one in eligible(servers, needed)] == [full.url]
    with pytest.raises(NamesMissing) as caught:
        eligible(servers[1:], needed)
    assert caught.value.names == tuple(f"upscale_models/{n}.pth (not on {empty.url})" for n in range(2))
    assert eligible(servers, []) == servers
    inactive = [one.model_copy(update={"active": False}) for one in needed]
    assert eligible(servers, inactive) == servers
