"""Files that cannot be had, come wrong, or bear names that hurt; and histories that say too little."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

Connect = Callable[..., Any]


async def test_a_listed_file_is_missing_as_often_as_it_is_told(connect: Connect) -> None:
    _, client = await connect(script="view-404:2,view-404")
    entry = await client.picture((await client.submit())[1])
    assert [(await client.view(entry))[0] for _ in range(4)] == [404, 404, 200, 200]

    entry = await client.picture((await client.submit())[1])
    assert [(await client.view(entry))[0] for _ in range(4)] == [404] * 4


@pytest.mark.parametrize(
    ("word", "is_reset", "sign"), [("view-short", False, -1), ("view-rst", True, -1), ("view-long", False, 1)]
)
async def test_a_file_is_not_as_long_as_it_says(
    connect: Connect, word: str, is_reset: bool, sign: int
) -> None:
    fake, client = await connect(script=f"{word}:1")
    entry = await client.picture((await client.submit())[1])

    data, error = await client.raw(f"GET /view?{urlencode(entry)} HTTP/1.1\r\nHost: fake\r\n\r\n")

    head, _, body = data.partition(b"\r\n\r\n")
    true = (fake.output_dir / entry["filename"]).read_bytes()
    assert int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) == len(true)
    assert (len(body) - len(true)) * sign > 0
    assert body.startswith(true) or true.startswith(body)
    assert isinstance(error, ConnectionResetError) is is_reset
    assert await client.view(entry) == (200, true)


async def test_all_files_are_missing_for_a_while(connect: Connect) -> None:
    _, client = await connect()
    entry = await client.picture((await client.submit())[1])

    await client.tell({"now": ["view-404"]})
    assert (await client.view(entry))[0] == 404

    await client.tell({"now": ["ok"]})
    assert (await client.view(entry))[0] == 200


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("name-spaces", "two  spaces"),
        ("name-unicode", "Grüße_картинка_画像"),
        ("name-dotdot", "../../../"),
        ("name-absolute", "/fake-comfy-absolute/"),
        ("name-long", "xxxxxxxxxx"),
    ],
)
async def test_a_file_bears_a_name_that_hurts(connect: Connect, word: str, part: str) -> None:
    fake, client = await connect(script=word)

    _, prompt_id, _ = await client.submit()
    told = (await client.next_of("executed"))["output"]["images"]
    entry = await client.picture(prompt_id)
    status, content = await client.view(entry)

    assert told == [entry]
    assert part in entry["filename"]
    assert entry["filename"].endswith(".png")
    assert (len(entry["filename"]) == 300) is (word == "name-long")
    assert (status, content[:4]) == (200, b"\x89PNG")
    assert [path.name for path in fake.output_dir.iterdir()] == ["x_00001_.png"]


async def test_old_servers_keep_no_status(connect: Connect) -> None:
    _, client = await connect(script="no-status")

    _, prompt_id, _ = await client.submit()
    entry = await client.end(prompt_id)

    assert set(entry) == {"prompt", "outputs", "meta"}
    assert await client.status(f"/api/jobs/{prompt_id}") == 404
    assert await client.status("/api/jobs") == 200


async def test_a_history_never_learns_of_a_prompt_that_ended(connect: Connect) -> None:
    fake, client = await connect(script="no-history")

    _, prompt_id, _ = await client.submit()
    await client.messages(prompt_id)

    assert await client.get(f"/history/{prompt_id}") == {}
    assert await client.get("/queue") == {"queue_running": [], "queue_pending": []}
    assert fake.log[0]["end"] == "success"
    assert (fake.output_dir / "x_00001_.png").is_file()


async def test_several_faults_strike_one_prompt(connect: Connect) -> None:
    _, client = await connect(script="node-errors+name-dotdot+duplicate")

    _, prompt_id, body = await client.submit()
    messages = await client.messages(prompt_id)

    assert set(body["node_errors"]) == {"2"}
    assert [kind for kind, _ in messages].count("executed") == 2
    assert (await client.picture(prompt_id))["filename"].startswith("../")


@pytest.mark.parametrize("where", ["folder\0/name", "na\0me"])
async def test_a_nul_in_a_name_is_the_nodes_error(connect: Connect, where: str) -> None:
    _, client = await connect()
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 7}},
        "2": {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": where}},
    }

    _, prompt_id, _ = await client.submit(prompt=graph)
    entry = await client.end(prompt_id)

    name, data = entry["status"]["messages"][-1]
    assert (name, data["exception_type"]) == ("execution_error", "ValueError")
    assert data["exception_message"] == "embedded null byte\n"
    assert (await client.end((await client.submit())[1]))["status"]["completed"]


async def test_a_nul_in_a_text_is_saved_like_any_other(connect: Connect) -> None:
    fake, client = await connect()
    inputs = {"text": "a\0b", "filename_prefix": "t", "format": "txt"}
    graph = {"2": {"class_type": "SaveText", "inputs": inputs}}

    _, prompt_id, _ = await client.submit(prompt=graph)
    entry = await client.end(prompt_id)

    assert entry["outputs"]["2"]["text"] == ["a\0b"]
    assert (fake.output_dir / "t_00001.txt").read_bytes() == b"a\0b"
