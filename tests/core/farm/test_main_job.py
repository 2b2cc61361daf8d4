"""The main job on real input: templates of ComfyUI's own, from lock to synced outputs."""

import asyncio
import hashlib
import json
import random
import struct
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from comfyfarm.cli import main
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.ids import JobId
from comfyfarm.run.classify import of_submission
from comfyfarm.run.outcome import Reason, Verdict
from comfyfarm.workflow.assets import find_assets
from comfyfarm.workflow.reading.reader import read_workflow
from comfyfarm.workflow.references.find import find_references
from comfyfarm.workflow.schema import NodeSchema

Serving = Callable[..., Any]

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "infra" / "demo_data" / "sdxl_controlnet.json"
MAGIC: dict[str, Callable[[bytes], bool]] = {
    "png": lambda data: data.startswith(b"\x89PNG\r\n\x1a\n"),
    "mp4": lambda data: data[4:8] == b"ftyp",
    "flac": lambda data: data.startswith(b"fLaC"),
    "mp3": lambda data: data.startswith((b"ID3", b"\xff\xfb", b"\xff\xf3")),
    "glb": lambda data: data.startswith(b"glTF\x02\0\0\0"),
}


def safetensors(seed: str) -> bytes:
    """A small true file of that format: length of the header, header, one tensor."""
    size = 20_000
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(size)


def make_inputs(folder: Path, workflows: list[Path], schema: NodeSchema) -> int:
    """A file for every input that the workflows name; how many."""
    folder.mkdir()
    count = 0
    for workflow in workflows:
        for asset in find_assets(read_workflow(workflow.read_bytes(), name=workflow.name), schema):
            if asset.path.endswith(".png"):
                Image.new("RGBA", (32, 32), "red").save(folder / asset.path)
            else:
                (folder / asset.path).write_bytes(hashlib.sha256(asset.path.encode()).digest())
            count += 1
    return count


def make_models(folder: Path, workflows: list[Path], schema: NodeSchema) -> list[Path]:
    """A small true model for every reference."""
    made = []
    for workflow in workflows:
        graph = read_workflow(workflow.read_bytes(), name=workflow.name)
        for one in find_references(graph, schema).references:
            file = folder / str(one.folder) / str(one.path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(safetensors(str(one.path)))
            made.append(file)
    return made


def command(*arguments: object) -> str:
    run = CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    return run.output


@pytest.fixture
def workflows(project: Any, gold: dict[str, dict[str, Any]]) -> list[Path]:
    """The gold rows as files, and a job file that names each."""
    files = [project.write(name, graph) for name, graph in gold.items()]
    jobs = project.root / "jobs.jsonl"
    jobs.write_text("".join(json.dumps({"workflow": file.name}) + "\n" for file in files))
    return files


def test_six_templates_go_from_lock_to_synced_outputs(
    project: Any, serving: Serving, workflows: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMFYFARM_STATE_DIR", str(project.root / "state"))
    root, schema = project.root, NodeSchema.shipped()
    models = make_models(root / "library", workflows, schema)
    inputs = make_inputs(root / "inputs", workflows, schema)
    lock = root / "comfyfarm.lock"

    command("lock", "make", *workflows, "--catalog", root / "library", "-o", lock)
    command("mirror", "add", *models, "--mirror", root / "mirror")
    served = serving(models_dir=root / "models")
    request = project.request(
        root / "jobs.jsonl",
        mirror=str(root / "mirror"),
        models_dir=root / "models",
        inputs_dir=root / "inputs",
    )
    told = asyncio.run(project.render(request))

    assert len(workflows) >= 5
    assert inputs == 5
    assert (
        len(json.loads(lock.read_text())["models"]) == len({file.relative_to(root) for file in models}) == 12
    )
    assert [(row.status, row.reason) for row in told] == [("succeeded", "")] * len(workflows)
    assert project.prompts() == {row.id: 1 for row in told}
    assert served.asked("POST /upload/image") == inputs
    by_template = {file.name: row for file, row in zip(workflows, told, strict=True)}
    assert kinds(project.out, by_template) == {
        "image_sdxl_simple.json": {"png"},
        "audio_ace_step_1_m2m_editing.json": {"flac"},
        "3d_hunyuan3d-v2.1.json": {"glb"},
        "utility-gan_upscaler.json": {"mp4"},
        "flux_fill_inpaint_example.json": {"png"},
        "image_qwen_image_controlnet_patch.json": {"png"},
    }
    for file in models:
        placed = root / "models" / file.relative_to(root / "library")
        assert placed.read_bytes() == file.read_bytes()
        assert placed.resolve().is_relative_to(root / "cache")


def kinds(out: Path, by_template: dict[str, Any]) -> dict[str, set[str]]:
    """What each template's files are, by their bytes; every hash is checked on the way."""
    found: dict[str, set[str]] = {}
    for template, row in by_template.items():
        for file in row.files:
            data = (out / row.id / file.path).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file.sha256
            (kind,) = [name for name, is_one in MAGIC.items() if is_one(data)]
            assert file.path.endswith(f".{kind}")
            found.setdefault(template, set()).add(kind)
        assert row.files, template
    return found


def test_the_rows_are_those_of_the_package(gold: dict[str, dict[str, Any]]) -> None:
    # tests/core/workflow/test_templates.py compares them node by node.
    folder = files("comfyui_workflow_templates_json") / "templates"

    assert all((folder / name).is_file() for name in gold)


# --- the demo with hydration left out -----------------------------------------------------------


@pytest.fixture
def demo(project: Any) -> Path:
    """The demo's workflow, locked, with its input; its models are nowhere."""
    workflow: Path = project.write("sdxl_controlnet.json", json.loads(DEMO.read_text()))
    Image.new("RGB", (16, 16), "grey").save(project.root / "depth.png")
    references = find_references(read_workflow(workflow.read_bytes(), name="w"), NodeSchema.shipped())
    models = [
        {"folder": one.folder, "path": one.path, "sha256": "0" * 64, "size": 1, "sources": ["/nowhere"]}
        for one in references.references
    ]
    project.write("comfyfarm.lock", {"version": 1, "models": models})
    return workflow


MODELS = [
    "checkpoints/demo_xl_base.safetensors",
    "loras/styles/ink.safetensors",
    "vae/demo_xl_vae.safetensors",
    "controlnet/demo_xl_depth.safetensors",
]


def test_without_its_models_the_demo_is_refused_with_exit_1_and_all_their_names(
    project: Any, serving: Serving, demo: Path
) -> None:
    served = serving()
    words = ["render", demo, "--server", served.url, "--out", project.out, "--ledger", project.ledger_url]
    told = CliRunner().invoke(main, [*map(str, words), "--local", "--json"], catch_exceptions=False)

    assert (told.exit_code, told.stdout) == (1, "")
    assert all(name in told.stderr for name in MODELS)
    assert served.prompts == []


async def test_the_server_itself_refuses_the_demo_without_its_models(
    project: Any, serving: Serving, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Our own check left out, the server's answer must end it just as well.
    monkeypatch.setattr("comfyfarm.farm.local.eligible", lambda servers, _needed: servers)
    served = serving()
    (row,) = await project.render(project.request(demo))

    assert (row.status, row.attempts) == ("dead", 1)
    assert row.reason.startswith("invalid workflow: node ")
    assert "safetensors" in row.reason
    assert served.prompts == []


async def test_its_answer_is_value_not_in_list(serving: Serving, demo: Path) -> None:
    graph = json.loads(demo.read_text())
    graph["7"] = {
        "class_type": "EmptyImage",
        "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0},
    }
    async with ComfyClient(serving().url) as client:
        answer = await client.submit(
            graph, prompt_id=JobId("00000000-0000-4000-8000-000000000001"), client_id="me"
        )
    outcome = of_submission(answer)

    assert answer.status == 400
    errors = {node: found["errors"][0]["type"] for node, found in answer.node_errors.items()}  # type: ignore[call-overload,index]
    assert errors == dict.fromkeys(["1", "2", "3", "6"], "value_not_in_list")
    assert outcome is not None
    assert (outcome.verdict, outcome.reason) == (Verdict.PERMANENT, Reason.INVALID_WORKFLOW)
