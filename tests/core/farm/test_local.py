"""A batch from preflight to synced outputs on fake servers, in this process."""

import hashlib
import json
import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from comfyfarm.errors import (
    AssetsMissing,
    InputError,
    JobConflict,
    NamesMissing,
    ServerUnreachable,
    UsageError,
    WorkflowError,
)
from comfyfarm.farm.request import RenderRequest
from comfyfarm.farm.results import ResultRow, exit_code
from comfyfarm.farm.servers import examine_all
from comfyfarm.farm.sources import read_sources
from comfyfarm.farm.stage import load_batch, plan_request, record_batch
from comfyfarm.farm.work import Batchwork
from comfyfarm.ids import JobId
from comfyfarm.ledger.ledger import open_ledger
from fake_server.comfy import ExtraNodes

Serving = Callable[..., Any]

SHIPPED = json.loads(resources.files("comfyfarm.workflow").joinpath("object_info.json").read_bytes())


def by_id(rows: list[ResultRow]) -> dict[str, ResultRow]:
    return {row.id: row for row in rows}


def block(*folders: Path) -> None:
    """Put a file where each folder should be."""
    for folder in folders:
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("in the way")


async def test_twelve_jobs_run_once_each_on_two_servers(project: Any, serving: Serving) -> None:
    servers = [serving(prompt_seconds=0.05), serving(prompt_seconds=0.05)]
    rows = await project.render(project.request(project.jobs(12)))

    assert [row.status for row in rows] == ["succeeded"] * 12
    assert exit_code(rows) == 0
    assert project.prompts() == {row.id: 1 for row in rows}
    assert {row.server for row in rows} == {one.url for one in servers}
    assert all(len(one.prompts) >= 3 for one in servers)
    for row in rows:
        (file,) = row.files
        data = (project.out / row.id / file.path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file.sha256
        assert len(data) == file.size
        assert row.attempts == 1
        assert row.seconds is not None
    assert len({row.files[0].sha256 for row in rows}) == 12
    assert project.files() == sorted(
        f"{row.id}/{name}" for row in rows for name in (row.files[0].path, "provenance.json")
    )
    assert not list((project.root / "state" / "spool").glob("*/*"))


async def test_the_provenance_says_where_a_picture_comes_from(project: Any, serving: Serving) -> None:
    serving(device="NVIDIA GeForce RTX 4090")
    (row,) = await project.render(project.request(project.jobs(1)))

    told = json.loads((project.out / row.id / "provenance.json").read_text())
    text = json.dumps(told)

    assert row.files[0].sha256 in text
    assert "RTX 4090" in text
    assert "0.27.0" in text
    assert "1.color" in text or '"color"' in text


async def test_the_same_batch_again_runs_nothing(project: Any, serving: Serving) -> None:
    serving()
    request = project.request(project.jobs(3))
    first = await project.render(request)

    assert await project.render(request) == first
    assert set(project.prompts().values()) == {1}


async def test_out_of_memory_is_tried_on_the_other_server_after_the_memory_is_freed(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    servers = [serving(script={ids[0]: "oom"}), serving(script={ids[0]: "oom"})]
    (row,) = await project.render(project.request(project.jobs(1, ids=ids)))

    assert (row.status, row.attempts) == ("succeeded", 3)
    assert sorted(len(one.prompts) for one in servers) == [1, 2]
    assert sum(one.asked("POST /free") for one in servers) == 2
    async with await open_ledger(project.ledger_url) as ledger:
        tries = await ledger.attempts(JobId(row.id))
    assert [one.reason for one in tries] == ["oom", "oom", None]
    assert tries[0].server_url != tries[1].server_url


async def test_a_dead_job_does_not_hold_up_the_good_ones(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    serving(script={ids[1]: "error", ids[2]: "invalid", ids[3]: "oom*9", ids[4]: "500,ok"})
    rows = by_id(await project.render(project.request(project.jobs(6, ids=ids))))

    assert {job_id: row.status for job_id, row in rows.items()} == {
        ids[0]: "succeeded",
        ids[1]: "dead",
        ids[2]: "dead",
        ids[3]: "dead",
        ids[4]: "succeeded",
        ids[5]: "succeeded",
    }
    assert (
        rows[ids[1]].reason
        == "node failed: node 2 SaveImage: RuntimeError: scripted error of the fake server"
    )
    assert rows[ids[2]].reason.startswith("invalid workflow: ")
    assert rows[ids[3]].reason.startswith("oom: ")
    assert [rows[ids[n]].attempts for n in (1, 2, 3, 4)] == [1, 1, 3, 2]
    assert exit_code(rows.values()) == 1
    assert exit_code([rows[ids[3]], rows[ids[0]]]) == 3
    async with await open_ledger(project.ledger_url) as ledger:
        assert "scripted error" in await ledger.evidence(JobId(ids[1]))


async def test_files_that_cannot_be_uploaded_are_kept_and_uploaded_by_the_next_call(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    serving()
    obstacles = [project.out / job_id for job_id in ids[:2]]
    block(*obstacles)
    request = project.request(project.jobs(2, ids=ids[:2]))

    rows = await project.render(request)

    assert [(row.status, row.reason) for row in rows] == [("pending", "not uploaded")] * 2
    assert exit_code(rows) == 3
    kept = list((project.root / "state" / "spool").rglob("*.png"))
    assert len(kept) == 2
    async with await open_ledger(project.ledger_url) as ledger:
        (batch,) = [one.name for one in await ledger.batches()]
        jobs = await ledger.jobs(batch)
    assert [(job.status, job.owner) for job in jobs] == [("rendered", None)] * 2
    assert all(job.upload_failures >= 1 for job in jobs)

    for obstacle in obstacles:
        obstacle.unlink()
    rows = await project.render(request)

    assert [row.status for row in rows] == ["succeeded"] * 2
    assert set(project.prompts().values()) == {1}
    assert all((project.out / row.id / row.files[0].path).is_file() for row in rows)


async def not_uploaded(project: Any, serving: Serving, job_id: str) -> RenderRequest:
    """One job is rendered, and its files wait here, since something is in their way."""
    serving()
    block(project.out / job_id)
    request: RenderRequest = project.request(project.jobs(1, ids=[job_id]))
    await project.render(request)
    return request


async def test_kept_files_that_were_changed_are_collected_again(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    request = await not_uploaded(project, serving, ids[0])
    (kept,) = (project.root / "state" / "spool").rglob("*.png")
    good = kept.read_bytes()
    kept.write_bytes(good[:40] + b"!!!!" + good[44:])
    (project.out / ids[0]).unlink()

    (first,) = await project.render(request)
    (second,) = await project.render(request)

    assert (first.status, first.reason) == ("pending", "not uploaded")
    assert second.status == "succeeded"
    assert (project.out / ids[0] / second.files[0].path).read_bytes() == good
    assert set(project.prompts().values()) == {1}


async def test_an_output_folder_that_takes_nothing_is_noticed_before_anything_is_rendered(
    project: Any, serving: Serving
) -> None:
    served = serving()
    block(project.out)

    with pytest.raises(UsageError, match=f"outputs cannot go to {project.out / 'here'}: "):
        await project.render(project.request(project.jobs(1), out=str(project.out / "here")))

    assert served.prompts == []


async def test_kept_files_that_are_gone_are_rendered_again(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    request = await not_uploaded(project, serving, ids[0])
    shutil.rmtree(project.root / "state" / "spool")
    (project.out / ids[0]).unlink()

    (row,) = await project.render(request)

    assert row.status == "succeeded"
    assert (project.out / row.id / row.files[0].path).is_file()


# --- what makes a batch impossible --------------------------------------------------------------


def loader(name: str) -> dict[str, Any]:
    return {
        "1": {"class_type": "UpscaleModelLoader", "inputs": {"model_name": name}},
        "2": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}},
        "3": {
            "class_type": "ImageUpscaleWithModel",
            "inputs": {"upscale_model": ["1", 0], "image": ["2", 0]},
        },
        "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "up"}},
    }


def pinned(*paths: str) -> dict[str, Any]:
    models = [
        {"folder": "upscale_models", "path": path, "sha256": "0" * 64, "size": 1, "sources": ["/nowhere"]}
        for path in paths
    ]
    return {"version": 1, "models": models}


async def test_an_unlocked_model_is_named_with_the_command_that_locks_it(
    project: Any, serving: Serving
) -> None:
    served = serving()
    project.write("a.json", loader("a.pth"))
    project.write("b.json", loader("b.pth"))
    jobs = project.root / "jobs.jsonl"
    jobs.write_text('{"workflow": "a.json"}\n{"workflow": "b.json"}\n')

    with pytest.raises(NamesMissing) as caught:
        await project.render(project.request(jobs))

    assert [name.partition(" ")[0] for name in caught.value.names] == [
        "upscale_models/a.pth",
        "upscale_models/b.pth",
    ]
    assert f"comfyfarm lock {project.root / 'a.json'} {project.root / 'b.json'} --catalog" in str(
        caught.value
    )
    assert served.prompts == []


async def test_without_a_models_folder_every_locked_name_must_be_offered(
    project: Any, serving: Serving
) -> None:
    here = serving()
    there = serving()
    workflow = project.write("w.json", loader("sub/a.pth"))
    request = project.request(workflow, lock=pinned("sub/a.pth"))

    with pytest.raises(NamesMissing) as caught:
        await project.render(request)
    assert caught.value.names == (
        f"upscale_models/sub/a.pth (not on {here.url})",
        f"upscale_models/sub/a.pth (not on {there.url})",
    )

    file = there.fake.models_dir / "upscale_models" / "sub" / "a.pth"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    (row,) = await project.render(request)

    assert (row.status, row.server) == ("succeeded", there.url)
    assert here.prompts == []


async def test_a_graph_that_cannot_run_is_refused_with_all_its_faults(
    project: Any, serving: Serving, graph: Any
) -> None:
    served = serving()
    bad = graph(width=0, batch_size=0)
    workflow = project.write("w.json", bad)

    with pytest.raises(InputError) as caught:
        await project.render(project.request(workflow))

    assert "node 1, width" in str(caught.value)
    assert "node 1, batch_size" in str(caught.value)
    assert served.prompts == []


async def test_a_server_on_which_the_workflow_cannot_run_gets_nothing_of_it(
    project: Any, serving: Serving, graph: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pack = ExtraNodes(classes={"Tint": SHIPPED["EmptyImage"]})
    poor, rich = serving(), serving(extra_nodes=pack)
    tinted = graph()
    tinted["1"]["class_type"] = "Tint"
    project.write("tinted.json", tinted)

    rows = await project.render(project.request(project.jobs(3, workflow="tinted.json")))

    assert [row.status for row in rows] == ["succeeded"] * 3
    assert poor.prompts == []
    assert len(rich.prompts) == 3
    assert f"cannot run on {poor.url}" in caplog.text
    assert "'Tint'" in caplog.text


async def test_a_batch_that_no_server_can_run_leaves_nothing_in_the_ledger(
    project: Any, serving: Serving
) -> None:
    serving()
    workflow = project.write("w.json", loader("sub/a.pth"))

    with pytest.raises(NamesMissing):
        await project.render(project.request(workflow, lock=pinned("sub/a.pth")))

    async with await open_ledger(project.ledger_url) as ledger:
        assert await ledger.batches() == ()


async def test_a_server_that_is_down_is_left_out(project: Any, serving: Serving) -> None:
    served = serving()
    request = project.request(project.jobs(2))
    with_dead = request.model_copy(update={"servers": ("http://127.0.0.1:1", served.url)})

    assert [row.status for row in await project.render(with_dead)] == ["succeeded"] * 2
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:1"):
        await project.render(request.model_copy(update={"servers": ("http://127.0.0.1:1",), "batch": "b"}))


async def test_a_known_id_with_other_content_is_refused_by_name(
    project: Any, serving: Serving, ids: list[str]
) -> None:
    serving()
    jobs = project.jobs(1, ids=ids)
    await project.render(project.request(jobs, batch="one"))

    for batch, overrides in (("one", {"1.width": 32}), ("two", {})):
        with pytest.raises(JobConflict, match=ids[0]):
            await project.render(project.request(jobs, batch=batch, overrides=overrides))
    assert project.prompts() == {ids[0]: 1}


# --- input files --------------------------------------------------------------------------------


def inverted(image: str) -> dict[str, Any]:
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": image}},
        "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "inverted"}},
    }


async def test_input_files_are_uploaded_once_to_each_server(project: Any, serving: Serving) -> None:
    servers = [serving(prompt_seconds=0.05), serving(prompt_seconds=0.05)]
    Image.new("RGB", (8, 8), "red").save(project.root / "face.png")
    (project.root / "inputs").mkdir()
    Image.new("RGB", (8, 8), "blue").save(project.root / "inputs" / "back.png")
    for name in ("face", "back"):
        project.write(f"{name}.json", inverted(f"{name}.png"))
    jobs = project.root / "jobs.jsonl"
    lines = [{"workflow": f"{name}.json", "set": {"3.filename_prefix": f"p{n}"}} for n in range(4) for name in ("face", "back")]  # fmt: skip  # noqa: E501
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines))

    rows = await project.render(project.request(jobs, inputs_dir=project.root / "inputs"))

    assert [row.status for row in rows] == ["succeeded"] * 8
    for served in servers:
        assert served.asked("POST /upload/image") <= 2
        names = {path.name for path in served.fake.input_dir.rglob("*.png")}
        assert names <= {"face.png", "back.png"}
    assert sum(one.asked("POST /upload/image") for one in servers) >= 2


async def test_a_batch_may_grow_by_a_second_call(project: Any, serving: Serving) -> None:
    served = serving()
    await project.render(project.request(project.jobs(2), batch="growing"))
    graph = json.loads((project.root / "w.json").read_text())
    graph["1"]["inputs"]["color"] = 77
    other = project.write("other.json", graph)

    rows = await project.render(project.request(other, batch="growing"))

    assert [row.status for row in rows] == ["succeeded"] * 3
    assert len(served.prompts) == 3


async def test_a_batch_does_not_change_where_its_outputs_go(project: Any, serving: Serving) -> None:
    serving()
    await project.render(project.request(project.jobs(1), batch="placed"))

    with pytest.raises(JobConflict, match="sends its outputs to"):
        await project.render(
            project.request(project.jobs(2), batch="placed", out=str(project.root / "elsewhere"))
        )


async def test_a_workflow_in_two_folders_is_rendered_with_the_input_files_of_each(
    project: Any, serving: Serving
) -> None:
    served = serving()
    for folder, color in (("a", "red"), ("b", "blue"), ("c", "green")):
        project.write(f"{folder}/w.json", inverted("face.png"))
        Image.new("RGB", (8, 8), color).save(project.root / folder / "face.png")
    jobs = project.root / "jobs.jsonl"
    jobs.write_text('{"workflow": "a/w.json"}\n{"workflow": "b/w.json"}\n')

    await project.render(project.request(jobs, batch="folders"))
    third = project.request(
        project.root / "c" / "w.json", batch="folders", overrides={"3.filename_prefix": "c"}
    )
    rows = await project.render(third)

    assert [row.status for row in rows] == ["succeeded"] * 3
    uploaded = {path.read_bytes() for path in served.fake.input_dir.rglob("face.png")}
    assert uploaded == {(project.root / folder / "face.png").read_bytes() for folder in "abc"}
    assert served.asked("POST /upload/image") == 3


async def test_earlier_jobs_keep_their_input_files_when_a_batch_grows(project: Any, serving: Serving) -> None:
    serving()
    for folder, color in (("a", "red"), ("b", "blue")):
        project.write(f"{folder}/w.json", inverted("face.png"))
        Image.new("RGB", (8, 8), color).save(project.root / folder / "face.png")
    async with await open_ledger(project.ledger_url) as ledger:
        for folder in "ab":
            job_file = project.root / f"{folder}.jsonl"
            job_file.write_text(
                json.dumps({"workflow": f"{folder}/w.json", "set": {"3.filename_prefix": folder}})
            )
            request = project.request(job_file, batch="growing")
            prepared = plan_request(request, read_sources(request), await examine_all(request.servers))
            await record_batch(ledger, request, prepared)
        _, both = await load_batch(ledger, "growing")
        jobs = await ledger.jobs("growing")

    work = Batchwork(both, {})
    assert {work.asset(job, "face.png").file.parent.name: job.overrides[0].value for job in jobs} == {
        "a": "a",
        "b": "b",
    }


async def test_every_missing_input_file_is_named_at_once(project: Any, serving: Serving) -> None:
    served = serving()
    for name in ("a", "b"):
        project.write(f"{name}.json", inverted(f"{name}.png"))
    jobs = project.root / "jobs.jsonl"
    jobs.write_text("".join(f'{{"workflow": "{name}.json"}}\n' for name in ("a", "b")))

    with pytest.raises(AssetsMissing) as caught:
        await project.render(project.request(jobs))

    assert [name.partition(" ")[0] for name in caught.value.names] == ["a.png", "b.png"]
    assert "--inputs" in str(caught.value)
    assert served.prompts == []


async def test_an_input_file_outside_of_its_folder_is_refused(project: Any, serving: Serving) -> None:
    served = serving()
    (project.root.parent / "escapes.png").write_bytes(b"a secret")
    workflow = project.write("w.json", inverted("../escapes.png"))

    with pytest.raises(WorkflowError, match="leads out of the folder of inputs"):
        await project.render(project.request(workflow))

    assert served.prompts == []
    assert served.asked("POST /upload/image") == 0


async def test_a_file_of_the_servers_own_is_not_looked_for_here(project: Any, serving: Serving) -> None:
    served = serving()
    Image.new("RGB", (8, 8), "red").save(served.fake.output_dir / "made.png")
    workflow = project.write("w.json", inverted("made.png [output]"))

    (row,) = await project.render(project.request(workflow))

    assert row.status == "succeeded"
    assert served.asked("POST /upload/image") == 0
