"""How many files a graph gives, what they are called, and what is told of nodes that are alike."""

import uuid
from typing import Any

import pytest

EMPTY = {"width": 16, "height": 16}


def picture(**more: Any) -> dict[str, Any]:
    color = uuid.uuid4().int % 0xFFFFFF
    return {"class_type": "EmptyImage", "inputs": EMPTY | {"batch_size": 1, "color": color} | more}


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def names(entry: dict[str, Any], of: str = "2") -> list[str]:
    return [file["filename"] for file in entry["outputs"][of]["images"]]


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (node("RepeatImageBatch", image=["1", 0], amount=3), 6),
        (node("ImageBatch", image1=["1", 0], image2=["1", 0]), 4),
        (node("ImageFromBatch", image=["1", 0], batch_index=1, length=9), 1),
        (node("ImageInvert", image=["1", 0]), 2),
    ],
    ids=lambda value: value["class_type"] if isinstance(value, dict) else str(value),
)
async def test_each_picture_of_a_batch_is_a_file(batch: dict[str, Any], count: int, comfy: Any) -> None:
    save = node("SaveImage", images=["3", 0], filename_prefix=f"{uuid.uuid4()}/a")
    entry = await comfy.render({"1": picture(batch_size=2), "3": batch, "2": save})

    assert names(entry) == [f"a_{number:05}_.png" for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("prefix", "subfolder", "name"),
    [
        ("{}/%width%x%height%", "{}", "16x16_00001_.png"),
        ("{}/a b \u96ea", "{}", "a b \u96ea_00001_.png"),
        ("{}/sub/", "", "{}/sub_00001_.png"),
        ("{}/deep/er/a", "{}/deep/er", "a_00001_.png"),
        ("{}/x/../a", "{}", "a_00001_.png"),
    ],
)
async def test_a_prefix_names_folder_and_file(prefix: str, subfolder: str, name: str, comfy: Any) -> None:
    own = str(uuid.uuid4())
    save = node("SaveImage", images=["1", 0], filename_prefix=prefix.format(own))
    entry = await comfy.render({"1": picture(), "2": save})
    (file,) = entry["outputs"]["2"]["images"]
    path = f"{file['subfolder']}/{file['filename']}".removeprefix("/")

    assert path == f"{subfolder}/{name}".removeprefix("/").format(own)
    assert (await comfy.http.get("/view", params=file)).status_code == 200


async def test_an_empty_prefix_is_a_dot(comfy: Any) -> None:
    save = node("SaveImage", images=["1", 0], filename_prefix="")
    entry = await comfy.render({"1": picture(), "2": save})

    assert names(entry)[0].startswith("._0")


@pytest.mark.parametrize("prefix", ["../../x", "/x"])
async def test_a_prefix_outside_the_folder_fails_its_node(prefix: str, comfy: Any) -> None:
    save = node("SaveImage", images=["1", 0], filename_prefix=prefix)
    kind, error = (await comfy.render({"1": picture(), "2": save}))["status"]["messages"][-1]

    assert (kind, error["exception_type"], error["node_id"]) == ("execution_error", "Exception", "2")
    assert "Saving image outside the output folder is not allowed" in error["exception_message"]


async def test_two_nodes_that_are_alike_are_run_once_and_show_one_file(comfy: Any, graphs: Any) -> None:
    graph = graphs.picture()
    graph["3"] = graph["2"]
    entry = await comfy.render(graph)

    assert names(entry, "2") == names(entry, "3") == ["picture_00001_.png"]
    assert entry["meta"]["2"] == entry["meta"]["3"]


async def test_previews_are_numbered_as_long_as_their_node_stays(comfy: Any, graphs: Any) -> None:
    def preview() -> dict[str, Any]:
        return {"1": picture(), "2": node("PreviewImage", images=["1", 0])}

    first = [names(await comfy.render(preview()))[0] for _ in range(2)]
    await comfy.render(graphs.text("another node 2"))
    anew = names(await comfy.render(preview()))[0]

    assert first[1] == first[0].replace("_00001_", "_00002_")
    assert anew.endswith("_00001_.png")


async def test_texts_are_joined_by_their_delimiter(comfy: Any) -> None:
    joined = node("StringConcatenate", string_a="a", string_b="b", delimiter=" - ")
    entry = await comfy.render({"1": joined, "2": node("PreviewAny", source=["1", 0])})

    assert entry["outputs"]["2"] == {"text": ["a - b"]}


@pytest.mark.parametrize(
    ("class_type", "value", "shown"),
    [("PrimitiveInt", 5, "5"), ("PrimitiveFloat", 2.5, "2.5"), ("PrimitiveBoolean", True, "True")],
)
async def test_a_plain_value_is_shown_as_text(class_type: str, value: Any, shown: str, comfy: Any) -> None:
    graph = {"1": node(class_type, value=value), "2": node("PreviewAny", source=["1", 0])}

    assert (await comfy.render(graph))["outputs"] == {"2": {"text": [shown]}}
