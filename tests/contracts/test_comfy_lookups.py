"""The routes that only tell, and what is unknown."""

from typing import Any

from comfyfarm.comfy.client import ComfyClient
from comfyfarm.comfy.wire import Phase
from comfyfarm.ids import JobId
from comfyfarm.workflow.schema import NodeSchema


async def test_an_unknown_prompt_has_no_history_and_no_job(comfy: Any, new_id: Any) -> None:
    prompt_id = new_id()
    job = await comfy.http.get(f"/api/jobs/{prompt_id}")

    assert await comfy.get(f"/history/{prompt_id}") == {}
    assert (job.status_code, job.json()) == (404, {"error": "Job not found"})
    async with ComfyClient(comfy.url) as client:
        assert (await client.prompt_state(JobId(prompt_id))).phase is Phase.UNKNOWN
        assert await client.history(JobId(prompt_id)) is None


async def test_what_is_removed_from_the_history_is_unknown(comfy: Any, graphs: Any) -> None:
    prompt_id = (await comfy.submit(graphs.picture()))["prompt_id"]
    await comfy.ended(prompt_id)
    answer = await comfy.post("/history", {"delete": [prompt_id]})

    assert answer.status_code == 200
    assert await comfy.history(prompt_id) is None
    assert await comfy.phase(prompt_id) == "unknown"


async def test_a_job_in_full(comfy: Any, graphs: Any) -> None:
    graph = graphs.picture()
    answer = await comfy.submit(graph)
    entry = await comfy.ended(answer["prompt_id"])
    job = await comfy.get(f"/api/jobs/{answer['prompt_id']}")

    assert (job["id"], job["status"], job["priority"]) == (answer["prompt_id"], "completed", answer["number"])
    assert (job["outputs"], job["outputs_count"]) == (entry["outputs"], 1)
    assert job["execution_status"] == entry["status"]
    assert job["workflow"]["prompt"] == graph
    assert job["execution_start_time"] <= job["execution_end_time"]


async def test_the_list_of_jobs_is_filtered_and_paged(comfy: Any, graphs: Any) -> None:
    ids = []
    for _ in range(2):
        ids.append((await comfy.submit(graphs.picture()))["prompt_id"])
        await comfy.ended(ids[-1])
    page = await comfy.get("/api/jobs", status="completed", limit="1")
    refused = await comfy.http.get("/api/jobs", params={"status": "nonsense"})

    assert [job["id"] for job in page["jobs"]] == ids[-1:]
    assert set(page["pagination"]) == {"offset", "limit", "total", "has_more"}
    assert page["pagination"]["has_more"]
    assert refused.status_code == 400


async def test_a_node_class_is_told_alone_as_among_all(comfy: Any) -> None:
    alone = await comfy.get("/object_info/EmptyImage")
    async with ComfyClient(comfy.url) as client:
        everything = await client.object_info()

    assert list(alone) == ["EmptyImage"]
    assert {"input", "output", "output_name", "output_node", "category", "python_module"} <= set(
        alone["EmptyImage"]
    )
    assert alone["EmptyImage"]["input"]["required"]["width"][0] == "INT"
    assert await comfy.get("/object_info/NoSuchNode") == {}
    schema = NodeSchema.from_object_info(everything, name=comfy.url)
    assert schema.outputs("EmptyImage") == ("IMAGE",)
    assert (schema.is_output_node("SaveImage"), schema.is_output_node("EmptyImage")) == (True, False)


async def test_the_system_and_its_features(comfy: Any) -> None:
    stats = await comfy.get("/system_stats")
    features = await comfy.get("/features")
    async with ComfyClient(comfy.url) as client:
        ours = await client.system_stats()

    assert {"comfyui_version", "python_version", "pytorch_version", "argv", "ram_total"} <= set(
        stats["system"]
    )
    assert set(stats["devices"][0]) == {
        *("name", "type", "index", "vram_total", "vram_free", "torch_vram_total", "torch_vram_free"),
    }
    assert (ours.version, ours.device.type) == (stats["system"]["comfyui_version"], "cpu")
    assert features["supports_preview_metadata"] is True
    assert features["max_upload_size"] == 104857600


async def test_free_is_answered_at_once_and_empties_the_cache(comfy: Any, graphs: Any, new_id: Any) -> None:
    graph = graphs.picture()
    await comfy.render(graph)
    answer = await comfy.post("/free", {"unload_models": True, "free_memory": True})
    # The worker heeds it before the next prompt, or just after.
    entries = [await comfy.render(graph, prompt_id=new_id()) for _ in range(2)]

    assert (answer.status_code, answer.content) == (200, b"")
    assert [] in [entry["status"]["messages"][1][1]["nodes"] for entry in entries]


async def test_free_of_models_keeps_the_results(comfy: Any, graphs: Any) -> None:
    graph = graphs.picture()
    await comfy.render(graph)
    await comfy.post("/free", {"unload_models": True})
    again = await comfy.render(graph)

    assert sorted(again["status"]["messages"][1][1]["nodes"]) == ["1", "2"]


async def test_the_log_tells_what_was_going_on(comfy: Any, graphs: Any) -> None:
    await comfy.render(graphs.picture())
    refused = graphs.picture()
    refused["1"]["inputs"]["width"] = 0
    await comfy.post("/prompt", {"prompt": refused})
    async with ComfyClient(comfy.url) as client:
        tail = await client.log_tail()

    assert "got prompt" in tail
    assert "Prompt executed in" in tail
    assert "Value 0 smaller than min of 1" in tail


async def test_the_log_is_no_part_of_the_api(comfy: Any) -> None:
    assert (await comfy.http.get("/internal/logs")).headers["Content-Type"].startswith("application/json")
    assert (await comfy.http.get("/api/internal/logs")).status_code == 404


async def test_what_there_is_not_is_404_and_no_json(comfy: Any) -> None:
    unknown = await comfy.http.get("/api/no/such/route")

    assert unknown.status_code == 404
    assert not unknown.headers["Content-Type"].startswith("application/json")


async def test_most_routes_exist_under_api_too(comfy: Any) -> None:
    for path in ("/queue", "/history", "/prompt", "/system_stats", "/features", "/object_info/SaveImage"):
        bare, prefixed = await comfy.get(path), await comfy.get(f"/api{path}")
        assert set(bare) == set(prefixed), path
