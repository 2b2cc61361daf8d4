"""Files: what is saved and under which keys, `/view`, uploads, and pictures that are none."""

import hashlib
import io
import uuid
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import TextEntry, read_history
from comfyfarm.run.classify import of_history
from comfyfarm.run.outcome import SUCCEEDED, Reason, Verdict

SIZE = {"width": 32, "height": 16, "batch_size": 3}
SOUND = {"class_type": "EmptyAudio", "inputs": {"duration": 0.5, "sample_rate": 44100, "channels": 2}}
VIDEO = {"class_type": "CreateVideo", "inputs": {"images": ["1", 0], "fps": 8.0}}
# The saving node, the node before it, its key, the files' names, and what they begin with.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str, list[str], bytes]] = {
    "SaveImage": ({"images": ["1", 0]}, {}, "images", [f"a_0000{n}_.png" for n in (1, 2, 3)], b"\x89PNG"),
    "SaveAnimatedWEBP": (
        {"images": ["1", 0], "fps": 6.0, "lossless": True, "quality": 80, "method": "default"},
        {},
        "images",
        ["a_00001_.webp"],
        b"RIFF",
    ),
    "SaveAnimatedPNG": (
        {"images": ["1", 0], "fps": 6.0, "compress_level": 4},
        {},
        "images",
        ["a_00001_.png"],
        b"\x89PNG",
    ),
    "SaveAudio": ({"audio": ["3", 0]}, {"3": SOUND}, "audio", ["a_00001.flac"], b"fLaC"),
    "SaveVideo": (
        {"video": ["3", 0], "format": "auto", "codec": "auto"},
        {"3": VIDEO},
        "images",
        ["a_00001_.mp4"],
        b"\0\0\0",
    ),
}


def png(color: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), color).save(buffer, "PNG")
    return buffer.getvalue()


async def upload(comfy: Any, name: str, content: bytes, **fields: str) -> Any:
    files = {"image": (name, content)}
    return await comfy.http.post("/upload/image", files=files, data=fields)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_saved_file_can_be_fetched(kind: str, comfy: Any, tmp_path: Path) -> None:
    inputs, more, key, names, magic = KINDS[kind]
    folder = str(uuid.uuid4())
    color = uuid.uuid4().int % 0xFFFFFF
    pictures = {"class_type": "EmptyImage", "inputs": SIZE | {"color": color}}
    save = {"class_type": kind, "inputs": inputs | {"filename_prefix": f"{folder}/a"}}
    entry = await comfy.render({"1": pictures, **more, "2": save})
    expected = [{"filename": name, "subfolder": folder, "type": "output"} for name in names]

    assert entry["status"]["status_str"] == "success"
    assert entry["outputs"]["2"][key] == expected
    assert entry["outputs"]["2"].get("animated") == (None if kind in {"SaveImage", "SaveAudio"} else [True])
    async with ComfyClient(comfy.url) as client:
        for number, file in enumerate(read_history(entry).files()):
            seen = await comfy.http.get("/view", params=file.model_dump(exclude={"node", "key"}))
            digest, size = await client.download(file, tmp_path / str(number))
            assert seen.content.startswith(magic)
            assert (hashlib.sha256(seen.content).hexdigest(), len(seen.content)) == (digest, size)
            assert int(seen.headers["Content-Length"]) == size
    assert of_history(read_history(entry), expected=["2"]) == SUCCEEDED


async def test_a_picture_is_of_the_size_that_was_asked_for(comfy: Any, graphs: Any) -> None:
    entry = await comfy.render(graphs.picture(side_px=48))
    seen = await comfy.http.get("/view", params=entry["outputs"]["2"]["images"][0])
    image = Image.open(io.BytesIO(seen.content))

    assert (seen.headers["Content-Type"], image.format, image.size) == ("image/png", "PNG", (48, 48))
    assert '"EmptyImage"' in image.text["prompt"]  # type: ignore[attr-defined]


async def test_a_preview_goes_to_the_temporary_folder(comfy: Any, graphs: Any) -> None:
    graph = graphs.picture()
    graph["2"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    (shown,) = (await comfy.render(graph))["outputs"]["2"]["images"]

    assert (shown["type"], shown["subfolder"]) == ("temp", "")
    assert (await comfy.http.get("/view", params=shown)).content.startswith(b"\x89PNG")


async def test_two_pictures_of_one_prefix_get_two_names(comfy: Any, graphs: Any) -> None:
    prefix = f"{uuid.uuid4()}/a"
    names = [
        (await comfy.render(graphs.picture(prefix)))["outputs"]["2"]["images"][0]["filename"]
        for _ in range(2)
    ]

    assert names == ["a_00001_.png", "a_00002_.png"]


@pytest.mark.parametrize("text", ["two\nlines", "x", "na\u00efve \u96ea"])
async def test_a_text_is_an_output_too(text: str, comfy: Any, graphs: Any) -> None:
    entry = await comfy.render(graphs.text(text))

    assert entry["outputs"] == {"2": {"text": [text]}}
    assert read_history(entry).texts() == (TextEntry(node="2", key="text", text=text),)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"filename": "no such.png"}, 404),
        ({"filename": "no such.png", "subfolder": "nor this"}, 404),
        ({"filename": "../input/a.png"}, 400),
        ({"filename": "/etc/passwd"}, 400),
        ({"filename": ""}, 400),
        ({"filename": "a.png", "type": "nonsense"}, 400),
        ({"filename": "a.png", "subfolder": "../.."}, 403),
        ({"filename": "a.png", "subfolder": "/etc"}, 403),
        ({}, 404),
    ],
)
async def test_view_gives_nothing_else(query: dict[str, str], status: int, comfy: Any) -> None:
    assert (await comfy.http.get("/view", params=query)).status_code == status


async def test_view_gives_a_part_of_a_file(comfy: Any, graphs: Any) -> None:
    entry = await comfy.render(graphs.picture())
    query = entry["outputs"]["2"]["images"][0]
    part = await comfy.http.get("/view", params=query, headers={"Range": "bytes=1-3"})
    head = await comfy.http.head("/view", params=query)

    assert (part.status_code, part.content) == (206, b"PNG")
    assert (head.status_code, head.content) == (200, b"")


async def test_an_uploaded_picture_can_be_loaded(comfy: Any, graphs: Any, tmp_path: Path) -> None:
    picture, folder = tmp_path / "mine.png", str(uuid.uuid4())
    picture.write_bytes(png("teal"))
    async with ComfyClient(comfy.url) as client:
        name = await client.upload(picture, name="mine.png", subfolder=folder)
    entry = await comfy.render(graphs.loaded(name))
    seen = await comfy.http.get("/view", params=entry["outputs"]["2"]["images"][0])

    assert name == f"{folder}/mine.png"
    assert Image.open(io.BytesIO(seen.content)).size == (8, 8)
    kept = await comfy.http.get(
        "/view", params={"filename": "mine.png", "subfolder": folder, "type": "input"}
    )
    assert kept.content == picture.read_bytes()


async def test_a_name_that_is_taken_gets_a_number_unless_it_is_the_same_or_overwrites(comfy: Any) -> None:
    name = f"{uuid.uuid4()}.png"
    red, blue = png("red"), png("blue")
    answers = [
        await upload(comfy, name, red),
        await upload(comfy, name, red),
        await upload(comfy, name, blue),
        await upload(comfy, name, blue, overwrite="true"),
    ]
    stem = name.removesuffix(".png")

    assert [answer.json()["name"] for answer in answers] == [name, name, f"{stem} (1).png", name]
    assert answers[0].json() == {"name": name, "subfolder": "", "type": "input"}
    for kept in (name, f"{stem} (1).png"):
        seen = await comfy.http.get("/view", params={"filename": kept, "type": "input"})
        assert seen.content == blue


async def test_an_upload_without_a_file_is_refused(comfy: Any) -> None:
    answer = await comfy.http.post("/upload/image", data={"subfolder": "x"})

    assert answer.status_code == 400


async def test_a_picture_that_is_overwritten_is_loaded_anew(comfy: Any, graphs: Any) -> None:
    name = f"{uuid.uuid4()}.png"
    graph = graphs.loaded(name)
    await upload(comfy, name, png("red"))
    first = await comfy.render(graph)
    await upload(comfy, name, png("blue"), overwrite="true")
    second = await comfy.render(graph)

    assert second["status"]["messages"][1][1]["nodes"] == []
    files = [entry["outputs"]["2"]["images"][0]["filename"] for entry in (first, second)]
    assert files == ["copy_00001_.png", "copy_00002_.png"]


async def test_a_broken_picture_fails_its_node_for_good(comfy: Any, graphs: Any, new_id: Any) -> None:
    name, prompt_id = f"{uuid.uuid4()}.png", new_id()
    assert (await upload(comfy, name, b"no picture at all")).status_code == 200
    async with comfy.listen("broken") as ears:
        await comfy.submit(graphs.loaded(name), prompt_id=prompt_id, client_id="broken")
        told = await ears.until("execution_error", prompt_id)
        await ears.until_over(prompt_id)
    entry = await comfy.history(prompt_id)
    outcome = of_history(read_history(entry), expected=["2"])

    assert set(told) == {
        *("prompt_id", "node_id", "node_type", "executed", "timestamp"),
        *("exception_message", "exception_type", "traceback", "current_inputs", "current_outputs"),
    }
    assert (told["node_id"], told["node_type"], told["executed"]) == ("1", "LoadImage", [])
    assert told["exception_type"] == "PIL.UnidentifiedImageError"
    assert told["exception_message"].endswith("\n")
    assert told["current_inputs"] == {"image": [name]}
    assert all(isinstance(line, str) for line in told["traceback"])
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    assert entry["status"]["messages"][-1] == ["execution_error", told]
    assert entry["outputs"] == {}
    assert await comfy.phase(prompt_id) == "failed"
    assert (outcome.verdict, outcome.reason) == (Verdict.PERMANENT, Reason.NODE_FAILED)
    assert outcome.message.startswith("node 1 LoadImage: PIL.UnidentifiedImageError: cannot identify image")


async def test_an_error_in_mid_run_names_what_was_done_before(comfy: Any, graphs: Any) -> None:
    graph = graphs.picture()
    graph["3"] = {"class_type": "ImageToMask", "inputs": {"image": ["1", 0], "channel": "alpha"}}
    graph["2"] = {"class_type": "MaskPreview", "inputs": {"mask": ["3", 0]}}
    entry = read_history(await comfy.render(graph))
    error = entry.message("execution_error")
    outcome = of_history(entry, expected=["2"])

    assert error is not None
    assert (error["node_id"], error["executed"]) == ("3", ["1"])
    assert set(error["current_inputs"]) == {"image", "channel"}
    assert sorted(error["current_outputs"]) == ["1", "2", "3"]
    assert (outcome.verdict, outcome.reason) == (Verdict.PERMANENT, Reason.NODE_FAILED)
    assert outcome.message.startswith("node 3 ImageToMask: IndexError: index 3 is out of bounds")
