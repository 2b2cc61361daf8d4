"""Messages that go wrong while the prompt itself runs on."""

from collections.abc import Callable
from typing import Any

import pytest

from fake_server.comfy import ExtraNodes
from fake_server.comfy.execute import Call

_LOUD = {"input": {"required": {}}, "output": [], "output_node": True, "python_module": "custom_nodes.loud"}
Connect = Callable[..., Any]


async def test_duplicates_come_twice_in_a_row(connect: Connect) -> None:
    _, client = await connect(script="duplicate")

    _, prompt_id, _ = await client.submit()
    messages = await client.messages(prompt_id)

    # Reading ended with the first of the two end markers.
    own = [str(each) for each in messages if each[0] != "status"]
    assert len(own) % 2 == 1
    assert own[0:-1:2] == own[1::2]
    assert (await client.end(prompt_id))["status"]["completed"]


async def test_neighbours_change_places(connect: Connect) -> None:
    _, client = await connect(script="ok,reorder")
    _, first, _ = await client.submit()
    kinds = [kind for kind, _ in await client.messages(first) if kind != "status"]

    body = {"prompt": _other_graph()}
    _, prompt_id, _ = await client.submit(**body)
    swapped = [kind for kind, _ in await client.messages(prompt_id) if kind != "status"]

    assert swapped != kinds
    assert swapped[:2] == ["execution_cached", "execution_start"]
    assert (await client.end(prompt_id))["status"]["completed"]


def _other_graph() -> dict[str, Any]:
    image = {"width": 8, "height": 8, "batch_size": 1, "color": 8}
    return {
        "1": {"class_type": "EmptyImage", "inputs": image},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": "y"}},
    }


async def test_foreign_prompts_end_in_the_middle_of_ours(connect: Connect) -> None:
    fake, client = await connect(script="foreign")

    _, prompt_id, _ = await client.submit()
    messages = await client.messages(prompt_id)

    foreign = [kind for kind, data in messages if data.get("prompt_id", prompt_id) != prompt_id]
    own = [kind for kind, data in messages if data.get("prompt_id") == prompt_id]
    assert {"execution_error", "execution_success", "executed", "executing"} <= set(foreign)
    assert own[-2:] == ["execution_success", "executing"]
    assert [each["prompt_id"] for each in fake.log] == [prompt_id]


async def test_executed_comes_of_intermediate_nodes_only(connect: Connect) -> None:
    _, client = await connect(script="intermediate")

    _, prompt_id, _ = await client.submit()
    messages = await client.messages(prompt_id)

    assert [data["node"] for kind, data in messages if kind == "executed"] == ["1"]
    assert set((await client.end(prompt_id))["outputs"]) == {"2"}


async def test_a_mute_socket_stays_open_while_the_prompt_ends(connect: Connect) -> None:
    _, client = await connect(script="mute-sockets")

    _, prompt_id, _ = await client.submit()
    assert (await client.next_of("executing"))["node"] == "1"
    entry = await client.end(prompt_id)

    assert entry["status"]["completed"]
    assert await client.silence()
    await client.reconnect("another")
    await client.next_of("status")


async def test_all_sockets_go_mute(connect: Connect) -> None:
    _, client = await connect()
    await client.next_of("status")
    await client.tell({"now": ["mute-sockets"]})

    _, prompt_id, _ = await client.submit()
    await client.end(prompt_id)
    assert await client.silence()

    await client.tell({"now": ["ok"]})
    _, prompt_id, _ = await client.submit()
    assert (await client.messages(prompt_id))[0][0] == "status"


async def test_a_frozen_sender_holds_back_and_thaws(connect: Connect) -> None:
    _, client = await connect()
    await client.next_of("status")
    await client.tell({"now": ["freeze-sender"]})

    _, prompt_id, _ = await client.submit()
    await client.end(prompt_id)
    assert await client.silence()

    await client.tell({"now": ["ok"]})
    assert "execution_success" in [kind for kind, _ in await client.messages(prompt_id)]


@pytest.mark.parametrize("spec", [{"script": "forget-client"}, {"now": ["forget-client"]}])
async def test_a_forgotten_client_hears_nothing_until_it_connects_again(
    connect: Connect, spec: dict[str, Any]
) -> None:
    _, client = await connect()
    await client.next_of("status")
    await client.tell(spec)

    _, prompt_id, _ = await client.submit()
    await client.end(prompt_id)
    _, second, _ = await client.submit()
    await client.end(second)

    heard = await client.heard()
    assert "execution_success" not in heard
    assert not client.ws.closed
    await client.reconnect()
    _, third, _ = await client.submit()
    assert "execution_success" in [kind for kind, _ in await client.messages(third)]


async def test_all_sockets_are_reset(connect: Connect) -> None:
    _, client = await connect()

    await client.tell({"now": ["drop"]})

    async for _ in client.ws:
        pass
    assert client.ws.close_code == 1006
    await client.reconnect()
    await client.next_of("status")


async def test_one_reader_that_stalls_stops_everybody_until_it_is_gone(connect: Connect) -> None:
    async def shout(call: Call) -> None:
        for _ in range(40):
            await call.reporter.progress_text("x" * 2**20)

    nodes = ExtraNodes(classes={"Loud": _LOUD}, behaviours={"Loud": shout})
    _, client = await connect(extra_nodes=nodes)
    stalled = await client.stalled_socket("stalled")

    loud = {"1": {"class_type": "Loud", "inputs": {}}}
    _, prompt_id, _ = await client.submit(prompt=loud, client_id="stalled")
    await client.end(prompt_id)
    _, second, _ = await client.submit()
    await client.end(second)
    assert "execution_start" not in await client.heard()

    stalled.close()
    assert "execution_success" in [kind for kind, _ in await client.messages(second)]
