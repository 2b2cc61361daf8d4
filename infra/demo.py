"""`make demo`: the whole road on this machine alone, with the commands that a user would type.

An S3 server from a package holds a mirror of small true model files; two fake ComfyUI servers render a
batch of 20 jobs under Prefect, one of them runs out of memory once. UI=1 keeps the dashboard up.
COMFYUI_DIR=/path/to/ComfyUI (and COMFYUI_PYTHON) renders a model-free workflow on a real one instead.
"""

import asyncio
import hashlib
import json
import os
import random
import shlex
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from PIL import Image

from comfyfarm.cache.places.objects import open_place
from infra.comfy_servers import Served, fake_comfy, real_comfy
from infra.s3_server import S3Server, s3_server

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "infra" / "demo_data"
JOBS = 20
MODELS = {
    ("checkpoints", "demo_xl_base.safetensors"): 6_000_000,
    ("loras", "styles/ink.safetensors"): 400_000,
    ("vae", "demo_xl_vae.safetensors"): 900_000,
    ("controlnet", "demo_xl_depth.safetensors"): 2_500_000,
}
SUBJECTS = ("a lighthouse in a storm", "a fox asleep in snow", "an old tram at night", "a market in the rain")


def main() -> int:
    """Run the demo; the exit code of `comfyfarm render`."""
    begun = time.monotonic()
    work = ROOT / ".demo"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    os.environ["COMFYFARM_STATE_DIR"] = str(work / "state")
    os.environ["COMFYFARM_CACHE_DIR"] = str(work / "cache")
    os.environ["PREFECT_HOME"] = str(work / "prefect")  # no profile of the user's own
    for inherited in ("PREFECT_API_URL", "COMFYFARM_LEDGER"):
        os.environ.pop(inherited, None)
    with ExitStack() as stack:
        if os.environ.get("UI"):
            stack.enter_context(_dashboard())
        road = _on_real_comfyui if os.environ.get("COMFYUI_DIR") else _on_fakes
        code = road(work, stack)
        print(f"\n{time.monotonic() - begun:.0f} s in all.")
        if os.environ.get("UI"):
            _comfyfarm("control", "status")
            _wait_for_interrupt()
    return code


def _on_fakes(work: Path, stack: ExitStack) -> int:
    s3 = stack.enter_context(s3_server(work / "s3"))
    os.environ.update(s3.environment)
    catalogue = _mirror(work, s3)
    jobs = _project(work / "project")
    servers = [
        stack.enter_context(
            fake_comfy(models_dir=work / "models", prompt_seconds=0.5, script=script, log=work / "fakes.log")
        )
        for script in ("ok*3,oom,ok", "ok")
    ]
    workflow = str(work / "project" / "sdxl_controlnet.json")
    lock = str(work / "project" / "comfyfarm.lock")
    _comfyfarm("preflight", workflow)
    _comfyfarm("lock", workflow, "--catalog", str(catalogue), "-o", lock)
    code = _render(jobs, servers, s3, work)
    _comfyfarm("results")
    found = _fetch(s3, work / "outputs")
    print(
        f"\nLook at {work / 'outputs'}: {found} files, fetched from s3://{s3.bucket}/demo.\n"
        f"The lock is {lock}\nThe logs are in {work / 'state' / 'control' / 'logs'}"
    )
    return code


def _render(jobs: Path, servers: list[Served], s3: S3Server, work: Path) -> int:
    arguments = ["render", str(jobs), "--batch", "demo", "--verbose"]
    for server in servers:
        arguments += ["--server", server.url]
    arguments += ["--mirror", f"s3://{s3.bucket}/mirror", "--models-dir", str(work / "models")]
    return _comfyfarm(*arguments, "--out", f"s3://{s3.bucket}/demo", check=False)


def _on_real_comfyui(work: Path, stack: ExitStack) -> int:
    directory = Path(os.environ["COMFYUI_DIR"])
    python = os.environ.get("COMFYUI_PYTHON", sys.executable)
    print("starting ComfyUI on the CPU …")
    server = stack.enter_context(real_comfy(directory, python, work / "comfyui"))
    jobs = work / "jobs.jsonl"
    shutil.copy(DATA / "model_free.json", work)
    lines = [{"workflow": "model_free.json", "set": {"1.color": 700_000 * seed}} for seed in range(JOBS)]
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = str(work / "outputs")
    code = _comfyfarm("render", str(jobs), "--server", server.url, "--out", out, check=False)
    print(f"\nLook at {out}")
    return code


def _mirror(work: Path, s3: S3Server) -> Path:
    """Small true .safetensors files into the mirror, and the catalogue that describes them."""
    print(f"S3 server at {s3.endpoint}")
    entries = []
    for (folder, path), size in MODELS.items():
        file = work / "upload" / folder / path
        file.parent.mkdir(parents=True)
        file.write_bytes(_safetensors(size, seed=path))
        _comfyfarm("mirror", "add", str(file), "--mirror", f"s3://{s3.bucket}/mirror", "--folder", folder)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        entries.append({"folder": folder, "path": path, "sha256": sha256, "size": file.stat().st_size})
    catalogue = work / "catalogue.json"
    for entry in entries:
        digest = str(entry["sha256"])
        entry["sources"] = [f"s3://{s3.bucket}/mirror/sha256/{digest[:2]}/{digest}"]
    catalogue.write_text(json.dumps(entries, indent=1))
    shutil.rmtree(work / "upload")
    return catalogue


def _safetensors(size: int, *, seed: str) -> bytes:
    """A true file of that format: length of the header, header, one tensor."""
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(size)


def _project(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(DATA / "sdxl_controlnet.json", folder)
    gradient = Image.linear_gradient("L").resize((256, 256))
    gradient.save(folder / "depth.png")
    lines = [
        {
            "workflow": "sdxl_controlnet.json",
            "set": {"10.seed": seed, "4.text": f"{SUBJECTS[seed % len(SUBJECTS)]}, ink drawing"},
        }
        for seed in range(JOBS)
    ]
    jobs = folder / "jobs.jsonl"
    jobs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return jobs


def _fetch(s3: S3Server, target: Path) -> int:
    """The batch's files out of the bucket: what a person can look at."""
    rows = subprocess.run(
        [_program(), "results", "--json"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    names = [f"{row['id']}/{file['path']}" for row in map(json.loads, rows) for file in row["files"]]
    place = open_place(f"s3://{s3.bucket}/demo")

    async def fetch() -> None:
        for name in names:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(await place.read_bytes(name) or b"")

    asyncio.run(fetch())
    return len(names)


def _program() -> str:
    return str(Path(sys.executable).with_name("comfyfarm"))


def _comfyfarm(*arguments: str, check: bool = True) -> int:
    print(f"\n$ comfyfarm {shlex.join(arguments)}", flush=True)
    return subprocess.run([_program(), *arguments], check=check).returncode


@contextmanager
def _dashboard() -> Iterator[None]:
    _comfyfarm("control", "start")
    try:
        yield
    finally:
        _comfyfarm("control", "stop", check=False)


def _wait_for_interrupt() -> None:
    print("\nThe dashboard stays up. Ctrl-C ends it.", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    sys.exit(main())
