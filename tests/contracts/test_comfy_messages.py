"""What the socket says of a run, in which order and to whom, and what the history keeps of it."""

from typing import Any

START = [("execution_start", None), ("execution_cached", None)]
END = [("execution_success", None), ("executing", None)]
RUN_OF_TWO_NODES = [
    *START,
    ("progress_state", None),
    ("executing", "1"),
    ("progress_state", None),
    ("progress_state", None),
    ("executing", "2"),
    ("executed", "2"),
    ("progress_state", None),
    *END,
]


async def test_a_run_is_told_in_order(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    async with comfy.listen("order") as ears:
        answer = await comfy.submit(graphs.picture(f"{prompt_id}/a"), prompt_id=prompt_id, client_id="order")
        await ears.until_over(prompt_id)

    assert ears.of(prompt_id) == RUN_OF_TWO_NODES
    (executed,) = (one["data"] for one in ears.heard if one["type"] == "executed")
    picture = {"filename": "a_00001_.png", "subfolder": prompt_id, "type": "output"}
    assert executed == {
        "node": "2",
        "display_node": "2",
        "output": {"images": [picture]},
        "prompt_id": prompt_id,
    }
    assert answer["number"] >= 0


async def test_the_number_of_prompts_left_is_told_to_everybody(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    async with comfy.listen("me") as mine, comfy.listen("other") as other:
        await comfy.submit(graphs.picture(), prompt_id=prompt_id, client_id="me")
        await mine.until_over(prompt_id)
        left = []
        for _ in range(3):
            status = (await other.until("status"))["status"]
            left.append(status["exec_info"]["queue_remaining"])

    assert left == [1, 1, 0]
    assert [one["type"] for one in mine.heard].count("status") == 4
    assert mine.heard[-2]["type"] == "status"


async def test_messages_go_to_the_submitter_alone(comfy: Any, graphs: Any, new_id: Any) -> None:
    first, second = new_id(), new_id()
    async with comfy.listen("a") as a, comfy.listen("b") as b:
        await comfy.submit(graphs.picture(), prompt_id=first, client_id="a")
        await a.until_over(first)
        await comfy.submit(graphs.picture(), prompt_id=second, client_id="b")
        await b.until_over(second)
        await comfy.submit(graphs.picture(), client_id="a")
        await a.until("execution_success")

    assert b.of(first) == []
    assert a.of(second) == []
    assert len(b.of(second)) == len(RUN_OF_TWO_NODES)


async def test_progress_of_a_prompt_without_a_client_goes_to_all(comfy: Any, graphs: Any) -> None:
    async with comfy.listen("bystander") as ears:
        answer = await comfy.http.post("/prompt", json={"prompt": graphs.picture()})
        prompt_id = answer.json()["prompt_id"]
        await comfy.ended(prompt_id)
        own = (await comfy.submit(graphs.picture(), client_id="bystander"))["prompt_id"]
        await ears.until_over(own)

    assert {kind for kind, _ in ears.of(prompt_id)} == {"progress_state"}


async def test_the_history_is_not_yet_there_at_the_word_of_success(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    missed = 0
    async with comfy.listen("lag") as ears:
        for _ in range(200):
            prompt_id = new_id()
            await comfy.submit(graphs.picture(), prompt_id=prompt_id, client_id="lag")
            await ears.until("execution_success", prompt_id)
            missed += await comfy.history(prompt_id) is None
            await ears.until_over(prompt_id)
            assert await comfy.history(prompt_id) is not None  # at the end marker it always is
            if missed:
                break

    assert missed


async def test_the_history_keeps_the_prompt_its_outputs_and_its_messages(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    prompt_id = new_id()
    graph = graphs.picture(f"{prompt_id}/a")
    answer = await comfy.submit(graph, prompt_id=prompt_id, client_id="kept")
    entry = await comfy.ended(prompt_id)
    number, kept_id, kept_graph, extra, outputs = entry["prompt"]

    assert set(entry) == {"prompt", "outputs", "status", "meta"}
    assert (number, kept_id, kept_graph, outputs) == (answer["number"], prompt_id, graph, ["2"])
    assert set(extra) == {"client_id", "create_time"}
    assert extra["client_id"] == "kept"
    picture = {"filename": "a_00001_.png", "subfolder": prompt_id, "type": "output"}
    assert entry["outputs"] == {"2": {"images": [picture]}}
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("success", True)
    messages = entry["status"]["messages"]
    assert [kind for kind, _ in messages] == ["execution_start", "execution_cached", "execution_success"]
    assert all(data["prompt_id"] == prompt_id for _, data in messages)
    stamps = [data["timestamp"] for _, data in messages]
    assert stamps == sorted(stamps)
    names = {"node_id": "2", "display_node": "2", "parent_node": None, "real_node_id": "2"}
    assert entry["meta"] == {"2": names}


async def test_the_same_graph_again_is_answered_from_the_cache(comfy: Any, graphs: Any, new_id: Any) -> None:
    graph, prompt_id = graphs.picture(), new_id()
    first = await comfy.render(graph)
    async with comfy.listen("again") as ears:
        await comfy.submit(graph, prompt_id=prompt_id, client_id="again")
        await ears.until_over(prompt_id)
    again = await comfy.history(prompt_id)

    (cached,) = (one["data"] for one in ears.heard if one["type"] == "execution_cached")
    assert sorted(cached["nodes"]) == ["1", "2"]
    assert ears.of(prompt_id) == [*START, ("executed", "2"), ("progress_state", None), *END]
    assert again["outputs"] == first["outputs"]
    assert again["status"]["messages"][1] == ["execution_cached", cached]


async def test_a_changed_node_is_run_and_what_it_needs_comes_from_the_cache(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    graph, prompt_id = graphs.picture(), new_id()
    await comfy.render(graph)
    graph["2"]["inputs"]["filename_prefix"] = f"{prompt_id}/other"
    entry = await comfy.render(graph, prompt_id=prompt_id)

    assert entry["status"]["messages"][1][1]["nodes"] == ["1"]
    assert entry["outputs"]["2"]["images"][0]["subfolder"] == prompt_id


async def test_a_reconnect_in_mid_run_is_told_the_node_and_the_rest(
    comfy: Any, graphs: Any, new_id: Any
) -> None:
    prompt_id = new_id()
    async with comfy.listen("back") as ears:
        await comfy.submit_slow(graphs.slow(), prompt_id=prompt_id, client_id="back")
        await ears.until("executing", prompt_id, node="b0")
    async with comfy.listen("back") as ears:
        told = await ears.until("executing")
        await ears.until("executing", prompt_id)
        await comfy.post("/interrupt", {"prompt_id": prompt_id})
        await ears.until_over(prompt_id)

    assert set(told) == {"node"}
    assert told["node"].startswith("b")
    assert "execution_start" not in {kind for kind, _ in ears.of(prompt_id)}
    assert ears.of(prompt_id)[-2:] == [("execution_interrupted", None), ("executing", None)]


async def test_nothing_is_replayed_after_the_end(comfy: Any, graphs: Any, new_id: Any) -> None:
    first, second = new_id(), new_id()
    async with comfy.listen("late") as ears:
        await comfy.submit(graphs.picture(), prompt_id=first, client_id="late")
        await ears.until_over(first)
    async with comfy.listen("late") as ears:
        await comfy.submit(graphs.picture(), prompt_id=second, client_id="late")
        await ears.until_over(second)

    assert ears.of(first) == []
    assert {one["type"] for one in ears.heard if "prompt_id" not in one["data"]} == {"status"}


async def test_a_second_socket_of_a_client_id_takes_over(comfy: Any, graphs: Any, new_id: Any) -> None:
    prompt_id = new_id()
    async with comfy.listen("same") as old, comfy.listen("same") as new:
        await comfy.submit(graphs.picture(), prompt_id=prompt_id, client_id="same")
        await new.until_over(prompt_id)
        await old.rest()

    assert [one["type"] for one in old.heard] == ["status"]
    assert len(new.of(prompt_id)) == len(RUN_OF_TWO_NODES)
