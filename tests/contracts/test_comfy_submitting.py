"""What `POST /prompt` answers, and what comfyfarm makes of it."""

import uuid
from typing import Any

import pytest

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.ids import JobId
from comfyfarm.run.classify import of_submission
from comfyfarm.run.outcome import Reason, Verdict

EMPTY = {"width": 16, "height": 16, "batch_size": 1, "color": 7}
SAVE: dict[str, Any] = {
    "class_type": "SaveImage",
    "inputs": {"images": ["1", 0], "filename_prefix": "refused"},
}


def empty(**changed: Any) -> dict[str, Any]:
    return {"class_type": "EmptyImage", "inputs": {**EMPTY, **changed}}


def without(node: dict[str, Any], name: str) -> dict[str, Any]:
    return node | {"inputs": {key: value for key, value in node["inputs"].items() if key != name}}


def saving(*link: Any) -> dict[str, Any]:
    return SAVE | {"inputs": {**SAVE["inputs"], "images": list(link)}}


INVALID = "prompt_outputs_failed_validation"
# The graph, the type of the refusal, the node that is blamed and for what, the reason that a person sees.
REFUSED: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "a required input is missing": (
        {"1": without(empty(), "width"), "2": SAVE},
        INVALID,
        "1",
        "required_input_missing",
        "node 1 EmptyImage: Required input is missing: width",
    ),
    "a value is too small": (
        {"1": empty(width=0), "2": SAVE},
        INVALID,
        "1",
        "value_smaller_than_min",
        "node 1 EmptyImage: Value 0 smaller than min of 1: width",
    ),
    "a value is too big": (
        {"1": empty(batch_size=5000), "2": SAVE},
        INVALID,
        "1",
        "value_bigger_than_max",
        "node 1 EmptyImage: Value 5000 bigger than max of 4096: batch_size",
    ),
    "a value is of another type": (
        {"1": empty(height="tall"), "2": SAVE},
        INVALID,
        "1",
        "invalid_input_type",
        "node 1 EmptyImage: Failed to convert an input value to a INT value: height, tall, "
        "invalid literal for int() with base 10: 'tall'",
    ),
    "a choice that is not offered": (
        {
            "1": empty(),
            "2": saving("3", 0),
            "3": {
                "class_type": "ImageScale",
                "inputs": {
                    "image": ["1", 0],
                    "upscale_method": "magic",
                    "width": 8,
                    "height": 8,
                    "crop": "disabled",
                },
            },
        },
        INVALID,
        "3",
        "value_not_in_list",
        "node 3 ImageScale: Value not in list: upscale_method: 'magic' not in "
        "['nearest-exact', 'bilinear', 'area', 'bicubic', 'lanczos']",
    ),
    "a link to a node that is not there": (
        {"1": empty(), "2": saving("9", 0)},
        INVALID,
        "2",
        "exception_during_validation",
        "node 2 SaveImage: Exception when validating node: '9'",
    ),
    "a link without a slot": (
        {"1": empty(), "2": saving("1")},
        INVALID,
        "2",
        "bad_linked_input",
        "node 2 SaveImage: Bad linked input, must be a length-2 list of [node_id, slot_index]: images",
    ),
    "a link of another type": (
        {"1": {"class_type": "PrimitiveInt", "inputs": {"value": 1}}, "2": SAVE},
        INVALID,
        "2",
        "return_type_mismatch",
        "node 2 SaveImage: Return type mismatch between linked nodes: images, received_type(INT) "
        "mismatch input_type(IMAGE)",
    ),
    "a picture that was not uploaded": (
        {"1": {"class_type": "LoadImage", "inputs": {"image": "no such.png"}}, "2": SAVE},
        INVALID,
        "1",
        "custom_validation_failed",
        "node 1 LoadImage: Custom validation failed for node: image - Invalid image file: no such.png",
    ),
    "a class that is not installed": (
        {"1": empty(), "2": SAVE, "3": {"class_type": "NoSuchNode", "inputs": {}}},
        "missing_node_type",
        "",
        "",
        "missing_node_type: Node 'NoSuchNode' not found. The custom node may not be installed.",
    ),
    "no node that shows anything": (
        {"1": empty()},
        *("prompt_no_outputs", "", "", "prompt_no_outputs: Prompt has no outputs"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_names_the_node_and_is_permanent(case: str, comfy: Any, new_id: Any) -> None:
    graph, kind, blamed, fault, reason = REFUSED[case]
    prompt_id = new_id()
    response = await comfy.post("/prompt", {"prompt": graph, "prompt_id": prompt_id, "client_id": "me"})
    body = response.json()

    assert response.status_code == 400
    assert set(body["error"]) == {"type", "message", "details", "extra_info"}
    assert body["error"]["type"] == kind
    assert list(body["node_errors"]) == ([blamed] if blamed else [])
    for node_id, found in body["node_errors"].items():
        assert set(found) == {"errors", "dependent_outputs", "class_type"}
        assert (found["class_type"], found["dependent_outputs"]) == (graph[node_id]["class_type"], ["2"])
        assert [error["type"] for error in found["errors"]] == [fault]
        assert set(found["errors"][0]) == {"type", "message", "details", "extra_info"}

    async with ComfyClient(comfy.url) as client:
        outcome = of_submission(await client.submit(graph, prompt_id=JobId(prompt_id), client_id="me"))
    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
    assert outcome.message.startswith(reason)
    assert await comfy.phase(prompt_id) == "unknown"


async def test_several_faults_of_a_node_come_together(comfy: Any) -> None:
    graph = {"1": without(empty(height=0), "width"), "2": SAVE}
    body = (await comfy.post("/prompt", {"prompt": graph})).json()

    # The real one looks at a set of names: the order is another with each start.
    assert {each["type"] for each in body["node_errors"]["1"]["errors"]} == {
        "required_input_missing",
        "value_smaller_than_min",
    }


async def test_an_id_of_our_choosing_is_kept(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    answer = await comfy.submit(graphs.picture(), prompt_id=prompt_id)
    entry = await comfy.ended(prompt_id)

    assert set(answer) == {"prompt_id", "number", "node_errors"}
    assert (answer["prompt_id"], answer["node_errors"]) == (prompt_id, {})
    assert entry["prompt"][:2] == [answer["number"], prompt_id]


async def test_without_an_id_the_server_makes_one(comfy: Any, graphs: Any) -> None:
    answer = await comfy.submit(graphs.picture(), prompt_id=None)

    assert str(uuid.UUID(answer["prompt_id"])) == answer["prompt_id"]


@pytest.mark.parametrize(
    "bad",
    ["job-1", "", 7, "5710758E-0114-4592-A356-D22302F1714C", "f773883ca00242679ecc36cf3a45e4dc"],
)
async def test_an_id_in_another_spelling_is_refused(bad: object, comfy: Any, graphs: Any) -> None:
    response = await comfy.post("/prompt", {"prompt": graphs.picture(), "prompt_id": bad})

    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_prompt_id")


async def test_numbers_grow_by_one_and_refused_prompts_use_them_up(comfy: Any, graphs: Any) -> None:
    first = await comfy.submit(graphs.picture())
    second = await comfy.submit(graphs.picture())
    await comfy.post("/prompt", {"prompt": {"1": empty()}})
    third = await comfy.submit(graphs.picture())

    assert [each["number"] - first["number"] for each in (second, third)] == [1, 3]


async def test_the_same_id_twice_is_two_runs(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id, graph = new_id(), graphs.picture()
    async with comfy.listen("twice") as ears:
        numbers = []
        for _ in range(2):
            answer = await comfy.submit(graph, prompt_id=prompt_id, client_id="twice")
            await ears.until_over(prompt_id)
            numbers.append(answer["number"])
        entry = await comfy.history(prompt_id)

    assert numbers[1] == numbers[0] + 1
    assert [kind for kind, _ in ears.of(prompt_id)].count("execution_success") == 2
    assert entry["prompt"][0] == numbers[1]


async def test_the_same_id_twice_in_the_queue_is_two_entries(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    running = await comfy.submit_slow(graphs.slow())
    for _ in range(2):
        await comfy.submit(graphs.picture(), prompt_id=prompt_id)

    assert (await comfy.queue())[1] == [prompt_id, prompt_id]
    await comfy.post("/queue", {"delete": [prompt_id]})
    assert (await comfy.queue())[1] == [prompt_id]
    assert await comfy.phase(running) == "in_progress"


async def test_what_can_run_of_a_graph_is_run_though_the_rest_is_refused(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    prompt_id, graph = new_id(), graphs.picture()
    graph["3"] = {"class_type": "PreviewImage", "inputs": {"images": ["4", 0]}}
    graph["4"] = empty(width=0)
    answer = await comfy.submit(graph, prompt_id=prompt_id)
    entry = await comfy.ended(prompt_id)

    assert [error["type"] for error in answer["node_errors"]["4"]["errors"]] == ["value_smaller_than_min"]
    assert entry["status"]["status_str"] == "success"
    assert list(entry["outputs"]) == ["2"]
    assert entry["prompt"][4] == ["2"]


@pytest.mark.parametrize("body", [b"{", b"", b"null", b'"prompt"', b'{"prompt": []}'])
async def test_a_body_that_makes_no_sense_is_a_500_and_hurts_nobody(body: bytes, comfy: Any) -> None:
    response = await comfy.http.post("/prompt", content=body)

    assert response.status_code == 500
    assert response.headers["Content-Type"].startswith("text/plain")


async def test_a_body_without_a_prompt_is_refused(comfy: Any, graphs: Any) -> None:
    response = await comfy.post("/prompt", graphs.picture())

    assert (response.status_code, response.json()["error"]["type"]) == (400, "no_prompt")
    assert response.json()["node_errors"] == {}
